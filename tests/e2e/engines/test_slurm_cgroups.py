"""GPUs that Slurm confines to jobs by device cgroups, so that each job counts them from 0."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.engines.test_slurm import submit, wait_until
from tests.e2e.study_folder import StudyFolder
from tests.engines.slurm_cluster import (
    SlurmCluster,
    has_device_cgroups,
    is_installed,
    slurm_cluster,
)
from tests.nvml_stub import NvmlStub, StubGpu

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(400)]

UUIDS = [f"GPU-aaa{number}" for number in range(4)]
#: Writes which GPU the trial has, and the numbers of those that the kernel lets it open.
SEEN = """
import errno, os, time
from pathlib import Path

LOG = Path(os.environ["STEPS_LOG"])

def may_open(number):
    try:
        os.close(os.open(f"{os.environ['FAKE_NVML_DEVICES']}/nvidia{number}", os.O_RDWR))
    except OSError as error:
        return error.errno != errno.EPERM  # There is no driver behind it.
    return True

def train(trial):
    numbers = "".join(str(number) for number in range(4) if may_open(number))
    with LOG.open("a") as log:
        log.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} {numbers}\\n")
    while not LOG.with_name("go").exists():
        time.sleep(0.05)
    return trial.params["x"]
"""


@pytest.fixture
def confining_server() -> Iterator[SlurmCluster]:
    """A Slurm with one node of four GPUs."""
    if not is_installed():
        pytest.skip("test_slurm says what is missing")
    if not has_device_cgroups():
        pytest.skip("this kernel has no device cgroups of version 1")
    with tempfile.TemporaryDirectory(prefix="tuner-slurm-") as name:
        Path(name).chmod(0o755)
        with slurm_cluster(Path(name), 1, confines_devices=True) as cluster:
            yield cluster


def test_trials_have_the_gpus_that_the_kernel_gives_to_their_job(
    engine_folder: StudyFolder,
    confining_server: SlurmCluster,
    nvml_stub: NvmlStub,
    steps_log: Path,
) -> None:
    nvml_stub.write([StubGpu(uuid=uuid) for uuid in UUIDS])
    devices = {"FAKE_NVML_DEVICES": str(confining_server.folder / "dev")}
    engine_folder.env |= confining_server.env | nvml_stub.env | devices
    engine_folder.write("seen.py", SEEN)
    engine_folder.study(
        storage="${STORAGE}",
        pruner="none",
        budget={"trials": 4},
        devices="auto",
        trial={"function": "seen:train", "stop_grace": "3s"},
        engine={"name": "slurm", "nodes": 2, "devices": 2, "time": "10m", "idle": "3s"},
    )
    first, second = submit(engine_folder)
    wait_until(lambda: len(lines_of(steps_log)) == 4, "each GPU has a trial")
    steps_log.with_name("go").touch()
    wait_until(lambda: set(confining_server.states().values()) == {"COMPLETED"}, "all is over")
    assert set(confining_server.states()) == {first, second}
    seen = dict(lines_of(steps_log))
    assert sorted(seen) == UUIDS
    assert sorted(set(seen.values())) == ["01", "23"]
    assert all(str(UUIDS.index(uuid)) in numbers for uuid, numbers in seen.items())


def lines_of(log: Path) -> list[list[str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split() for line in lines]
