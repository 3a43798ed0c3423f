"""GPUs from the command line, on a machine whose NVML is a stub: who gets which, and when."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cuda_stub import compiled_cuda_stub
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu, StubProcess, StubSlice
from tuner.errors import EXIT_INTERRUPTED

SEEN = """
import os

def train(trial):
    trial.set_user_attr("visible", os.environ["CUDA_VISIBLE_DEVICES"])
    trial.set_user_attr("label", list(trial.device_labels))
    return trial.params.x
"""

# What a killed CUDA program does to the driver's figures: its memory outlives its process.
LEAK = """
import os
from pathlib import Path

def train(trial):
    if trial.number == 0:
        state = Path(os.environ["FAKE_NVML"])
        os.replace(state.with_name("full.txt"), state)
    return trial.params.x
"""


GATED = """
import time
from pathlib import Path

def train(trial):
    while not Path(f"go-{trial.number}").exists():
        time.sleep(0.02)
    return trial.params.x
"""


# As CuPy and Numba do: torch does not know of it.
INITIALISES_CUDA = """
import ctypes
import os

import torch

IMPORTED_BY = os.getpid()
assert ctypes.CDLL({library!r}).cuInit(0) == 0

def train(trial):
    trial.set_user_attr("imported_by_itself", IMPORTED_BY == os.getpid())
    return trial.params.x
"""


@contextmanager
def mps_server(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of that name."""
    program = folder / "nvidia-cuda-mps-server"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as server:
        yield server
        server.kill()


def seen_by_trials(folder: StudyFolder, key: str) -> set[str]:
    query = "select value_json from trial_user_attributes where key = ?"
    return {value for (value,) in folder.rows(query, key)}


def test_auto_uses_every_free_gpu_and_names_the_busy_one(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    busy = StubProcess(pid=1, mib=9000)
    nvml_stub.write(
        [
            StubGpu(uuid="GPU-aaaa"),
            StubGpu(uuid="GPU-bbbb", used_mib=9003, processes=(busy,)),
            StubGpu(uuid="GPU-cccc"),
        ]
    )
    gpu_folder.write("seen.py", SEEN)
    gpu_folder.study(trial={"function": "seen:train"}, devices="auto", budget={"trials": 8})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert "devices: GPU 0, GPU 2" in ended.out
    assert "GPU 1 is left out" in ended.out
    assert "pid 1" in ended.out
    assert seen_by_trials(gpu_folder, "visible") == {'"GPU-aaaa"', '"GPU-cccc"'}
    assert seen_by_trials(gpu_folder, "label") == {'["GPU 0"]', '["GPU 2"]'}


def test_module_that_initialises_cuda_is_imported_by_each_trial_itself(
    study_folder: StudyFolder, tmp_path: Path
) -> None:
    library = compiled_cuda_stub(tmp_path, "libcuda.so.1")
    study_folder.write("seen.py", INITIALISES_CUDA.format(library=str(library)))
    study_folder.study(trial={"function": "seen:train"}, devices="cpu:1", budget={"trials": 2})
    ended = study_folder.tune()
    assert ended.code == 0, ended.text
    assert "trial.function: importing seen initialises CUDA" in ended.out
    assert seen_by_trials(study_folder, "imported_by_itself") == {"true"}


def test_gpu_with_the_server_of_mps_is_free(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub, tmp_path: Path
) -> None:
    with mps_server(tmp_path) as server:
        process = StubProcess(pid=server.pid, mib=66)
        nvml_stub.write([StubGpu(uuid="GPU-aaaa", used_mib=74, processes=(process,))])
        shown = gpu_folder.tuner("devices", "--json")
        (row,) = json.loads(shown.out)
        assert row["is_free"], shown.text
        assert "nvidia-cuda-mps-server" in row["holders"]
        gpu_folder.write("seen.py", SEEN)
        gpu_folder.study(trial={"function": "seen:train"}, devices="auto", budget={"trials": 2})
        ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert "devices: GPU 0\n" in ended.out


def test_mig_slices_are_devices_of_their_own(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    slices = (StubSlice(uuid="MIG-1111"), StubSlice(uuid="MIG-2222"))
    nvml_stub.write([StubGpu(uuid="GPU-aaaa", slices=slices)])
    gpu_folder.write("seen.py", SEEN)
    gpu_folder.study(trial={"function": "seen:train"}, devices="auto", budget={"trials": 6})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert seen_by_trials(gpu_folder, "visible") == {'"MIG-1111"', '"MIG-2222"'}


def test_cuda_visible_devices_is_respected(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa"), StubGpu(uuid="GPU-bbbb")])
    gpu_folder.write("seen.py", SEEN)
    gpu_folder.study(trial={"function": "seen:train"}, devices="auto", budget={"trials": 2})
    ended = gpu_folder.start(env={"CUDA_VISIBLE_DEVICES": "1"}).wait()
    assert ended.code == 0, ended.text
    assert "devices: GPU 1\n" in ended.out
    assert seen_by_trials(gpu_folder, "visible") == {'"GPU-bbbb"'}


def test_cpu_slots_hide_every_gpu(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    gpu_folder.write("seen.py", SEEN)
    gpu_folder.study(trial={"function": "seen:train"}, devices="cpu:1", budget={"trials": 1})
    assert gpu_folder.tune().code == 0
    assert seen_by_trials(gpu_folder, "visible") == {'""'}


def test_next_trial_gets_the_gpu_only_when_its_memory_is_back(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa", used_mib=40_000)])
    nvml_stub.state_file.rename(nvml_stub.state_file.with_name("full.txt"))
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    gpu_folder.write("leak.py", LEAK)
    gpu_folder.study(trial={"function": "leak:train"}, devices="auto", budget={"trials": 2})
    running = gpu_folder.start()
    wait_until(lambda: "trial 0: completed" in running.out, "the first trial completes")
    wait_until(lambda: gpu_folder.attempts()[0].state == "clearing", "its device is awaited")
    assert len(gpu_folder.attempts()) == 1
    memory_back_at = datetime.now(UTC).replace(tzinfo=None)
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    ended = running.wait()
    assert ended.code == 0, ended.text
    (leased_at,) = gpu_folder.rows("select max(leased_at) from tuner_attempts")[0]
    assert datetime.fromisoformat(leased_at) > memory_back_at
    assert [attempt.outcome for attempt in gpu_folder.attempts()] == ["completed", "completed"]


def test_gpu_that_a_study_gives_up_goes_to_another_one(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa"), StubGpu(uuid="GPU-bbbb")])
    gpu_folder.write("gated.py", GATED)
    trial = {"function": "gated:train"}
    gpu_folder.study(trial=trial, devices=[0], budget={"trials": 4})
    first = gpu_folder.start()
    wait_until(lambda: "trial 0: started on GPU 0" in first.out, "it has the first GPU")
    assert gpu_folder.tuner("set", "devices=[0,1]").code == 0
    wait_until(lambda: "trial 1: started on GPU 1" in first.out, "it has the other one as well")
    fewer = gpu_folder.tuner("set", "devices=[1]")
    assert "It has GPU 1 now; GPU 0 gets no trial any more" in fewer.out, fewer.text
    gpu_folder.study("other.yaml", study="other", trial=trial, devices=[0], budget={"trials": 1})
    refused = gpu_folder.tune(file="other.yaml")
    assert refused.code == 2
    assert "another tuner" in refused.err
    gpu_folder.write("go-0", "")
    wait_until(lambda: "trial 0: completed" in first.out, "what ran there has ended")
    wait_until(lambda: gpu_folder.attempts()[0].state == "finished", "its GPU is free")
    second = gpu_folder.start(file="other.yaml")
    wait_until(lambda: "trial 0: started on GPU 0" in second.out, "another study has it")
    for number in range(4):
        gpu_folder.write(f"go-{number}", "")
    assert (first.wait().code, second.wait().code) == (0, 0)
    assert first.out.count(": started on GPU 0") == 1


def test_two_tuners_do_not_share_a_gpu(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub, tmp_path: Path
) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    gate = tmp_path / "gate"
    gpu_folder.write(
        "gated.py",
        "import pathlib, time\n"
        "def train(trial):\n"
        f"    while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
        "    return trial.params.x\n",
    )
    gpu_folder.study(trial={"function": "gated:train"}, devices="auto", budget={"trials": 1})
    gpu_folder.study("other.yaml", study="other", devices="auto", storage="sqlite:///other.db")
    first = gpu_folder.start()
    wait_until(lambda: "trial 0: started" in first.out, "the first tuner has the GPU")
    second = gpu_folder.tune(file="other.yaml")
    gate.touch()
    assert first.wait().code == 0
    assert second.code == 2
    assert "another tuner" in second.err
    assert "Traceback" not in second.text


# Takes memory of the stub's first GPU as a CUDA program would, for a while.
TAKES_MEMORY = """
import contextlib, fcntl, os, time
from pathlib import Path

STATE = Path(os.environ["FAKE_NVML"])
MIB = 9000

@contextlib.contextmanager
def changed():
    with STATE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = STATE.read_text().splitlines()
        yield lines
        n_ours = sum(line.startswith("proc ") for line in lines)
        at = next(n for n, line in enumerate(lines) if line.startswith("gpu "))
        words = lines[at].split(" ")
        words[3] = str(3 + MIB * n_ours)
        lines[at] = " ".join(words)
        new = STATE.with_suffix(".new")
        new.write_text("\\n".join(lines) + "\\n")
        os.replace(new, STATE)

def train(trial):
    own = f"proc {os.getpid()} {MIB}"
    with changed() as lines:
        lines.append(own)
        trial.set_user_attr("n_here", sum(line.startswith("proc ") for line in lines))
    for step in range(6):
        trial.report(trial.params.x, step)
        time.sleep(0.3)
    with changed() as lines:
        lines.remove(own)
    return trial.params.x
"""


@pytest.mark.parametrize(
    ("resources", "most"),
    [
        pytest.param({"gpus": 0.5}, 2, id="half"),
        pytest.param({"memory": "12GiB"}, 6, id="memory"),
        pytest.param({"gpus": "auto"}, 1, id="auto-begins-with-one"),
    ],
)
def test_trials_share_a_gpu_and_their_memory_is_recorded(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub, resources: dict[str, object], most: int
) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    gpu_folder.write("forecast.py", TAKES_MEMORY)
    trial = {"function": "forecast:train", "resources": resources}
    gpu_folder.study(trial=trial, devices="auto", budget={"trials": max(3, most)})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert "sharing: trials on one GPU take turns" in ended.out
    assert seen_by_trials(gpu_folder, "n_here") <= {str(n) for n in range(1, most + 1)}
    peaks = gpu_folder.rows("select distinct peak_memory_bytes from tuner_attempts")
    assert peaks == [(9000 * 1024**2,)]


def test_wide_trial_gets_gpus_that_nvlink_joins(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    nvml_stub.write(
        [
            StubGpu(uuid="GPU-aaaa", links=(2,)),
            StubGpu(uuid="GPU-bbbb", links=(3,)),
            StubGpu(uuid="GPU-cccc"),
            StubGpu(uuid="GPU-dddd"),
        ]
    )
    gpu_folder.write("seen.py", SEEN)
    trial = {"function": "seen:train", "resources": {"gpus": 2}, "parallel": "single_process"}
    gpu_folder.study(trial=trial, devices="auto", budget={"trials": 6})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert seen_by_trials(gpu_folder, "visible") == {'"GPU-aaaa,GPU-cccc"', '"GPU-bbbb,GPU-dddd"'}


def test_gpu_types_and_max_gpus_choose_in_a_mixed_box(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    names = ("NVIDIA T4", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H200")
    nvml_stub.write(
        [StubGpu(uuid=f"GPU-{number}aaa", name=name) for number, name in enumerate(names)]
    )
    gpu_folder.write("seen.py", SEEN)
    trial = {"function": "seen:train", "resources": {"gpus": 1, "gpu_type": ["H200", "A100"]}}
    gpu_folder.study(trial=trial, devices="auto", max_gpus=2, budget={"trials": 4})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert "devices: GPU 1, GPU 2\n" in ended.out
    assert "GPU 0 (NVIDIA T4) is left out: trial.resources.gpu_type is [H200, A100]" in ended.out


def test_gpu_that_somebody_left_is_taken_up_while_the_study_runs(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    busy = StubProcess(pid=1, mib=9000)
    free, taken = StubGpu(uuid="GPU-aaaa"), StubGpu(uuid="GPU-bbbb", processes=(busy,))
    nvml_stub.write([free, taken])
    gpu_folder.write("seen.py", SEEN.replace("return", "import time; time.sleep(0.2); return"))
    gpu_folder.study(trial={"function": "seen:train"}, devices="auto", budget=None)
    running = gpu_folder.start()
    wait_until(lambda: "trial 0: completed" in running.out, "a trial has run on GPU 0")
    nvml_stub.write([free, StubGpu(uuid="GPU-bbbb")])
    wait_until(lambda: "on GPU 1" in running.out, "a trial runs on GPU 1")
    assert "GPU 1 is free and taken up." in running.out
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
