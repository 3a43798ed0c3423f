"""What goes wrong on a real GPU: errors of CUDA, memory, killed processes, other programs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

HOLD = """
import sys, torch
held = torch.zeros(3 * 1024**3, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StudyFolder]:
    if torch.cuda.device_count() == 0:
        pytest.skip("torch sees no NVIDIA GPU")
    path = tmp_path / "user"
    path.mkdir()
    folder = StudyFolder(path=path)
    yield folder
    folder.end_all()


def study(folder: StudyFolder, program: str, **keys: object) -> None:
    folder.write("forecast.py", program)
    folder.study(**{"devices": [0], "budget": {"trials": 2}, **keys})


@contextmanager
def program_on_the_gpu() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        yield other
        other.communicate()


ASSERTION = """
import torch

def train(trial):
    x = torch.ones(100, device=trial.device)
    if trial.number == 0:
        x = x[torch.tensor([10**6], device=trial.device)]
    return x.sum().item()
"""


def test_error_of_cuda_ends_its_trial_alone(folder: StudyFolder) -> None:
    study(folder, ASSERTION)
    folder.tune()
    first, second = folder.attempts()
    assert (first.outcome, first.cause) == ("failed", "exception")
    assert "device-side assert triggered" in first.detail
    assert second.outcome == "completed"


# As a program in C ends.
NO_MEMORY = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, name = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_char_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2**50))
cuda.cuGetErrorName(code, ctypes.byref(name))
raise SystemExit(name.value.decode())
"""


def test_command_without_torch_that_gets_no_memory(folder: StudyFolder) -> None:
    trial = {"command": [sys.executable, "forecast.py"]}
    study(folder, NO_MEMORY, trial=trial, budget={"trials": 1})
    folder.tune()
    assert {(each.outcome, each.cause) for each in folder.attempts()} == {
        ("out_of_memory", "device_memory")
    }


KILLED = """
import os
import signal
import torch

def train(trial):
    free, total = torch.cuda.mem_get_info()
    kept = torch.empty(int(free * 0.75), dtype=torch.uint8, device=trial.device).zero_()
    torch.cuda.synchronize()
    if trial.attempt_number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0
"""


def test_memory_of_a_killed_trial_is_free_for_the_next(folder: StudyFolder) -> None:
    study(folder, KILLED, trial={"function": "forecast:train", "retries": 1})
    assert folder.tune().code == EXIT_BUDGET_REACHED
    assert [each.outcome for each in folder.attempts()] == ["failed", "completed"] * 2


IMPORTS = {
    "torch": "torch.cuda.get_device_name(0)",
    "torch-tensor": "DATA = torch.zeros(4, device='cuda')",
    "cupy": "import cupy; DATA = cupy.zeros(4)",
    "numba": "from numba import cuda; FOUND = cuda.is_available()",
}


@pytest.mark.parametrize("name", IMPORTS)
def test_module_that_uses_cuda_when_it_is_imported(folder: StudyFolder, name: str) -> None:
    if importlib.util.find_spec(name.partition("-")[0]) is None:
        pytest.skip(f"{name} is not installed")
    train = "def train(trial):\n    return torch.ones(4, device=trial.device).sum().item()\n"
    study(folder, f"import torch\n{IMPORTS[name]}\n\n{train}")
    ended = folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "initialises CUDA" in ended.out
    assert [each.outcome for each in folder.attempts()] == ["completed"] * 2


SLOW = """
import time
import optuna
import torch

def train(trial):
    state = trial.load_checkpoint()
    x = torch.zeros(1000, device=trial.device) if state is None else state["x"].to(trial.device)
    first = int(x[0])
    if first:
        trial.set_user_attr("first", first)
    for step in range(first, 20):
        x += 1
        trial.save_checkpoint({"x": x}, step=step)
        trial.report(float(x[0]), step)
        if trial.should_prune():
            raise optuna.TrialPruned
        time.sleep(0.2)
    return float(x[0])
"""


def test_tensors_on_the_gpu_continue_after_ctrl_c(folder: StudyFolder) -> None:
    study(folder, SLOW, trial={"function": "forecast:train", "resources": {"gpus": 0.5}})
    running = folder.start()
    wait_until(lambda: running.out.count(": started on") == 2, "both run")
    query = "select distinct trial_id from tuner_checkpoints"
    wait_until(lambda: len(folder.rows(query)) == 2, "both have saved")
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    assert folder.tune().code == EXIT_BUDGET_REACHED
    query = "select value_json from trial_user_attributes where key = 'first'"
    first = [int(value) for (value,) in folder.rows(query)]
    assert len(first) == 2
    assert min(first) > 0
    assert folder.rows("select value from trial_values") == [(20.0,)] * 2


TRAIN = """
import torch

def train(trial):
    return torch.ones(4, device=trial.device).sum().item()
"""


def test_gpu_that_another_program_uses_is_left_to_it(folder: StudyFolder) -> None:
    study(folder, TRAIN, devices="auto")
    with program_on_the_gpu() as other:
        shown = folder.tuner("devices")
        assert f"(pid {other.pid}" in shown.out
        if torch.cuda.device_count() == 1:
            refused = folder.tune()
            assert refused.code == 2, refused.text
            assert f"(pid {other.pid}" in refused.err
        study(folder, TRAIN, study="named", storage="sqlite:///named.db")
        named = folder.tune()
        assert named.code == EXIT_BUDGET_REACHED, named.text
        assert "GPU 0 is in use" in named.out
    study(folder, TRAIN, devices="auto")
    assert folder.tune().code == EXIT_BUDGET_REACHED


BURN = """
import json
import os
import time
import pynvml
import torch

def train(trial):
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    begin = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    x = torch.randn(4096, 4096, device=trial.device)
    end_s = time.monotonic() + 6.0
    while time.monotonic() < end_s:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()
    trial.set_user_attr("joules", (pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - begin) / 1000)
    own = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
    trial.set_user_attr("bytes", sum(each.usedGpuMemory for each in own if each.pid == os.getpid()))
    return 1.0
"""


def test_energy_and_memory_are_those_that_the_driver_counts(folder: StudyFolder) -> None:
    study(folder, BURN, budget={"trials": 1})
    assert folder.tune().code == EXIT_BUDGET_REACHED
    told = dict(folder.rows("select key, value_json from trial_user_attributes"))
    query = "select energy_mj, utilization_pct_ms / covered_ms from tuner_attempt_usage"
    ((energy_mj, utilization_pct),) = folder.rows(query)
    # What is counted begins a little later and ends a little sooner than the lease.
    assert energy_mj / 1000 == pytest.approx(float(told["joules"]), rel=0.15)
    assert utilization_pct > 80
    ((peak_bytes,),) = folder.rows("select peak_memory_bytes from tuner_attempts")
    assert peak_bytes == pytest.approx(int(told["bytes"]), rel=0.1)


@contextmanager
def mps(folder: Path) -> Iterator[dict[str, str]]:
    """A daemon of MPS for those alone who have its environment."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        pytest.skip("NVIDIA's MPS is not installed")
    folder.mkdir()
    own = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    env = os.environ | own
    subprocess.run([control, "-d"], env=env, check=True, timeout=20)
    try:
        yield own
    finally:
        subprocess.run([control], input="quit -t 5\n", text=True, env=env, check=False, timeout=30)


def test_trials_under_mps(folder: StudyFolder, tmp_path: Path) -> None:
    resources = {"gpus": 0.5}
    trial = {"function": "forecast:train", "resources": resources}
    with mps(tmp_path / "mps") as env:
        folder.env |= env
        study(folder, BURN, trial=trial, devices="auto")
        ended = folder.tune()
        assert ended.code == EXIT_BUDGET_REACHED, ended.text
        assert "NVIDIA's MPS runs" in ended.out
        uses = folder.rows("select utilization_pct_ms / covered_ms from tuner_attempt_usage")
        # Half of what the server did, and all of it while one was alone.
        assert all(25 < pct < 75 for (pct,) in uses), uses
        # MPS's server is still on the GPU.
        study(folder, TRAIN, study="later", trial=trial, devices="auto")
        later = folder.tune()
        assert later.code == EXIT_BUDGET_REACHED, later.text
