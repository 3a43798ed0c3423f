"""A GPU that breaks in the middle of a study."""

from __future__ import annotations

import subprocess
from typing import cast

from tests.integration.dispatcher.endings.test_outage import check_books
from tests.integration.dispatcher.world import FakeWorker, World, completes, sleeps
from tuner.devices.allocation.quarantine import Quarantine
from tuner.devices.device import Device
from tuner.domain.attempt import Cause, Outcome
from tuner.store.schema.models import AttemptRow

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


class PlayedTest:
    """A test of a device, of which it is known from the start how it ends."""

    pid = 4_999_999

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code


class Clinic(Quarantine):
    """Its devices pass their tests once the test of the dispatcher says so."""

    def __init__(self) -> None:
        super().__init__(self._test)
        self.tested: list[str] = []
        self.is_mended = False

    def _test(self, device: Device) -> subprocess.Popen[bytes]:
        self.tested.append(device.label)
        return cast("subprocess.Popen[bytes]", PlayedTest(0 if self.is_mended else 1))


def breaks_gpu_0(worker: FakeWorker) -> None:
    if worker.request.assign.devices == ("GPU 0",):
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.fail(ECC))
    else:
        completes(worker)


def test_trials_go_elsewhere_and_the_gpu_gets_no_more(make_world):
    clinic = Clinic()
    world = make_world(breaks_gpu_0, n_devices=2, n_trials=5, quarantine=clinic)
    assert world.run().n_completed == 5
    check_books(world, 5)
    (failed,) = [row for row in world.rows(AttemptRow) if row.outcome is Outcome.FAILED]
    assert failed.cause is Cause.DEVICE_FAULT
    assert clinic.reasons == {"GPU 0": ECC}
    assert clinic.tested == ["GPU 0"]
    (said,) = world.said
    assert "GPU 0 looks broken" in said
    assert "uncorrectable ECC" in said


def test_gpu_that_passes_its_test_is_used_again(make_world):
    clinic = Clinic()
    programs = iter([breaks_gpu_0])

    def program(worker: FakeWorker) -> None:
        is_first = worker.request.assign.devices == ("GPU 0",)
        (next(programs, completes) if is_first else completes)(worker)

    world = make_world(program, n_devices=2, n_trials=200, quarantine=clinic)
    world.turn(30.0)
    assert clinic.tested == ["GPU 0"]
    clinic.is_mended = True
    world.turn(60.0)
    assert clinic.tested == ["GPU 0"] * 2
    assert clinic.reasons == {}
    assert "GPU 0 has passed its test" in world.said[-1]
    devices = [worker.request.assign.devices for worker in world.workers[-4:]]
    assert ("GPU 0",) in devices


def test_study_waits_where_all_gpus_are_kept_apart(make_world):
    clinic = Clinic()
    programs = iter([breaks_gpu_0])
    world = make_world(
        lambda worker: next(programs, completes)(worker),
        n_devices=1,
        n_trials=2,
        quarantine=clinic,
    )
    world.turn(30.0)
    assert len(world.workers) == 1
    clinic.is_mended = True
    assert world.run().n_completed == 2


def test_program_that_says_so_everywhere_fails_in_the_end(make_world):
    clinic = Clinic()
    clinic.is_mended = True

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.fail("no CUDA-capable device is detected"))

    world = make_world(program, n_devices=2, n_trials=1, quarantine=clinic)
    result = world.run()
    assert (result.n_failed, len(world.workers)) == (1, 4)


def loses_gpu_0(world: World) -> None:
    """In the middle of a trial."""
    world.program = sleeps
    world.turn(1.0)
    lost, other = world.workers
    assert lost.request.assign.devices == ("GPU 0",)
    world.probe.lose(world.probe.devices()[0])
    world.program = completes
    lost.exit(1)
    other.complete()
    world.turn(1.0)


def test_gpu_that_was_lost_is_used_again_once_it_is_back_and_works(make_world):
    clinic = Clinic()
    clinic.is_mended = True
    world = make_world(n_devices=2, n_trials=400, quarantine=clinic)
    loses_gpu_0(world)
    world.turn(70.0)
    assert clinic.tested == ["GPU 0"], "it is tested after a minute"
    assert not any("GPU 0 is back" in text for text in world.said)
    world.probe.find(world.probe.devices()[0])
    n_before = len(world.workers)
    world.turn(70.0)
    assert clinic.tested == ["GPU 0"] * 2
    assert "GPU 0 is back" in world.said[-1]
    assert ("GPU 0",) in {each.request.assign.devices for each in world.workers[n_before:]}
    assert clinic.reasons == {}


def test_gpu_that_is_back_and_does_not_work_gets_nothing(make_world):
    clinic = Clinic()
    world = make_world(n_devices=2, n_trials=400, quarantine=clinic)
    loses_gpu_0(world)
    world.probe.find(world.probe.devices()[0])
    world.turn(200.0)
    assert clinic.tested == ["GPU 0"] * 2
    assert {each.request.assign.devices for each in world.workers[2:]} == {("GPU 1",)}
