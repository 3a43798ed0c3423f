"""`tuner devices`: once, again and again, as a table and as JSON."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu, StubProcess

LINKED = (
    StubGpu(uuid="GPU-aaaa", links=(1,), numa_nodes=frozenset({0})),
    StubGpu(uuid="GPU-bbbb", numa_nodes=frozenset({1})),
    StubGpu(uuid="GPU-cccc"),
)


@pytest.fixture
def linked_gpus(nvml_stub: NvmlStub) -> NvmlStub:
    nvml_stub.write(LINKED)
    return nvml_stub


def test_table_shows_islands_and_memory_nodes(
    gpu_folder: StudyFolder, linked_gpus: NvmlStub
) -> None:
    ended = gpu_folder.tuner("devices")
    assert (ended.code, ended.err) == (0, "")
    _, *lines = ended.out.splitlines()
    assert [line.split()[-4:-2] for line in lines[:2]] == [["0", "0"], ["0", "1"]]
    assert lines[2].split()[-4] == "-"


def test_json_is_for_programs(gpu_folder: StudyFolder, linked_gpus: NvmlStub) -> None:
    ended = gpu_folder.tuner("devices", "--json")
    assert (ended.code, ended.err) == (0, "")
    first, *_ = json.loads(ended.out)
    assert first | {"name": "", "memory_total_bytes": 0} == {
        "label": "GPU 0",
        "id": "GPU-aaaa",
        "name": "",
        "memory_total_bytes": 0,
        "memory_used_bytes": 3 * 1024**2,
        "utilization_pct": 0,
        "island": 0,
        "numa_node": 0,
        "holders": "",
        "is_free": True,
    }


def test_watch_in_a_pipe_prints_a_table_for_each_look_until_ctrl_c(
    gpu_folder: StudyFolder, linked_gpus: NvmlStub
) -> None:
    watching = gpu_folder.start_tuner("devices", "--watch", "--interval", "0.1")
    wait_until(lambda: watching.out.count("GPU-aaaa") > 1, "there are two tables")
    assert "(pid 1" not in watching.out
    linked_gpus.write([StubGpu(uuid="GPU-aaaa", processes=(StubProcess(pid=1),)), *LINKED[1:]])
    wait_until(lambda: "(pid 1" in watching.out, "the process is shown")
    watching.signal(signal.SIGINT)
    ended = watching.wait()
    assert (ended.code, ended.err) == (0, "")


def test_interval_must_be_a_time(gpu_folder: StudyFolder) -> None:
    ended = gpu_folder.tuner("devices", "--watch", "--interval", "0")
    assert ended.code == 2
    assert "Traceback" not in ended.text
