"""Devices that look broken: the program that tests one, and who waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.launch.conftest import is_process_alive
from tests.cuda_stub import compiled_cuda_stub
from tests.e2e.study_folder import wait_until
from tests.fakes import a_gpu
from tuner.devices.allocation.quarantine import Quarantine, start_self_test
from tuner.devices.device import Device
from tuner.devices.gpu_check import ENV_LIBRARY

GPU = a_gpu(0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_cuda_stub(tmp_path_factory.mktemp("cuda"))


@pytest.mark.parametrize(("wrong", "code"), [("", 0), ("init", 1), ("memory", 1)])
def test_self_test_tells_a_gpu_that_works(
    library: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, code: int
) -> None:
    monkeypatch.setenv(ENV_LIBRARY, str(library))
    monkeypatch.setenv("FAKE_CUDA", wrong)
    assert start_self_test(GPU).wait(60) == code


def test_self_test_without_a_driver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_LIBRARY, "libnothing.so")
    assert start_self_test(GPU).wait(60) == 1


#: A dispatcher whose GPU hangs, as far as that goes.
STARTS_A_TEST = """
import time
from tests.fakes import a_gpu
from tuner.devices.allocation.quarantine import start_self_test

print(start_self_test(a_gpu(0)).pid, flush=True)
time.sleep(600)
"""


def test_self_test_that_hangs_ends_with_a_dispatcher_that_is_killed(library: Path) -> None:
    environment = {
        **os.environ,
        ENV_LIBRARY: str(library),
        "FAKE_CUDA": "hang",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    dispatcher = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_TEST], env=environment, stdout=subprocess.PIPE
    )
    assert dispatcher.stdout is not None
    hanging = int(dispatcher.stdout.readline())
    wait_until(lambda: str(library) in Path(f"/proc/{hanging}/maps").read_text(), "it hangs")
    dispatcher.kill()
    dispatcher.wait()
    wait_until(lambda: not is_process_alive(hanging), "it is gone")


def test_self_test_that_comes_after_its_dispatcher_ends_at_once(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_LIBRARY, str(library))
    gone = subprocess.Popen(["true"])
    gone.wait()
    command = [sys.executable, "-m", "tuner.devices.gpu_check", str(gone.pid)]
    assert subprocess.run(command, check=False).returncode == 1


class PlayedTests:
    """Real processes that play the test, in turn, as the test of the test says."""

    def __init__(self, *codes: str) -> None:
        self._codes = iter(codes)
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, device: Device) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", next(self._codes)]
        self.started.append(subprocess.Popen(command, start_new_session=True))
        return self.started[-1]


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[Quarantine, PlayedTests]]]:
    made: list[Quarantine] = []

    def make_one(*codes: str) -> tuple[Quarantine, PlayedTests]:
        tests = PlayedTests(*codes)
        made.append(Quarantine(tests))
        made[-1].put(GPU, "uncorrectable ECC error", 0.0)
        return made[-1], tests

    yield make_one
    for each in made:
        each.close()


PASSES, FAILS, HANGS = "", "raise SystemExit(1)", "import time; time.sleep(600)"


def test_device_that_passes_is_given_back(
    make: Callable[..., tuple[Quarantine, PlayedTests]],
) -> None:
    quarantine, _ = make(PASSES)
    assert quarantine.reasons == {"GPU 0": "uncorrectable ECC error"}
    found: list[Device] = []
    wait_until(lambda: bool(found.extend(quarantine.look(0.0)) or found), "it has passed")
    assert found == [GPU]
    assert quarantine.reasons == {}


def test_device_that_fails_is_tried_again_ever_later(
    make: Callable[..., tuple[Quarantine, PlayedTests]],
) -> None:
    quarantine, tests = make(FAILS, FAILS, PASSES)
    assert quarantine.look(0.0) == []
    tests.started[0].wait(60)
    for now_s, n_started in ((1.0, 1), (60.0, 1), (61.0, 2)):
        assert quarantine.look(now_s) == []
        assert len(tests.started) == n_started
    tests.started[1].wait(60)
    for now_s, n_started in ((62.0, 2), (180.0, 2), (182.0, 3)):
        assert quarantine.look(now_s) == []
        assert len(tests.started) == n_started
    tests.started[2].wait(60)
    assert quarantine.look(183.0) == [GPU]


def test_test_that_hangs_has_failed(make: Callable[..., tuple[Quarantine, PlayedTests]]) -> None:
    quarantine, tests = make(HANGS, PASSES)
    quarantine.look(0.0)
    assert quarantine.look(59.0) == []
    assert tests.started[0].poll() is None
    assert quarantine.look(60.0) == []
    assert tests.started[0].wait(60) < 0


def test_closing_ends_a_test(make: Callable[..., tuple[Quarantine, PlayedTests]]) -> None:
    quarantine, tests = make(HANGS)
    quarantine.look(0.0)
    quarantine.close()
    assert tests.started[0].wait(60) < 0
