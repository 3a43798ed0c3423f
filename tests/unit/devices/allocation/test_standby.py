"""GPUs that others use are given way on, and taken once they are free."""

from __future__ import annotations

import os

import pytest

from tests.fakes import GIB, FakeProbe, a_gpu
from tuner.devices.allocation.standby import Standby, own_process_tree
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, Holder
from tuner.errors import DeviceError

ANN = Holder(pid=4242, user="ann", command="python", memory_bytes=8 * GIB)
BY_ANN = "python (pid 4242, user ann) holds 8.0 GiB of it"
ZERO, ONE, TWO = (a_gpu(index) for index in range(3))


class Claims:
    """Locks of which another tuner has some."""

    def __init__(self, *taken: Device) -> None:
        self.taken = list(taken)
        self.ours: list[Device] = []

    def acquire(self, device: Device) -> bool:
        if device not in self.taken:
            self.ours.append(device)
        return device not in self.taken

    def release(self, device: Device) -> None:
        if device in self.ours:
            self.ours.remove(device)

    def owner_pid(self, device: Device) -> int | None:
        return 77


class BrokenClaims(Claims):
    def acquire(self, device: Device) -> bool:
        raise DeviceError(f"{device.label} cannot be claimed.")


@pytest.fixture
def probe():
    return FakeProbe(3)


def a_standby(probe, locks=None, *, own_pids=frozenset(), **options) -> Standby:
    return Standby(probe, locks or Claims(), own_pids=lambda: own_pids, **options)


def test_busy_device_is_taken_once_it_is_free(probe):
    locks = Claims()
    standby = a_standby(probe, locks)
    probe.use(ONE, ANN)
    standby.add(ONE, BY_ANN)
    assert standby.look(1) == ()
    assert (standby.devices, dict(standby.reasons)) == ((ONE,), {ONE.id: BY_ANN})
    probe.use(ONE)
    assert standby.look(1) == (ONE,)
    assert (standby.devices, dict(standby.reasons)) == ((), {})
    assert locks.ours == [ONE]
    assert standby.look(2) == ()


def test_device_of_another_tuner_is_taken_once_it_is_given_back(probe):
    locks = Claims(ZERO)
    standby = a_standby(probe, locks)
    standby.add(ZERO, "")
    assert standby.look(0) == ()
    assert standby.reasons[ZERO.id] == "another tuner (pid 77) uses it"
    locks.taken.clear()
    assert standby.look(0) == (ZERO,)


def test_reason_follows_the_use(probe):
    standby = a_standby(probe)
    standby.add(ZERO, "max_gpus is 1")
    probe.use(ZERO, memory_used_bytes=2 * GIB)
    standby.look(0)
    assert standby.reasons[ZERO.id].startswith("2.0 GiB of it is held by processes that cannot")


def test_devices_are_taken_in_index_order_and_no_more_than_the_maximum(probe):
    locks = Claims()
    standby = a_standby(probe, locks, max_devices=3)
    for device in (TWO, ZERO, ONE):
        standby.add(device, "max_gpus is 3")
    assert standby.look(3) == ()
    assert locks.ours == []
    assert standby.look(1) == (ZERO, ONE)
    assert standby.devices == (TWO,)
    assert standby.look(3) == ()
    assert standby.look(2) == (TWO,)


def test_device_that_is_given_up_is_free_to_other_tuners(probe):
    locks = Claims()
    locks.acquire(ZERO)
    a_standby(probe, locks).add(ZERO, BY_ANN)
    assert locks.ours == []


def test_device_that_cannot_be_read_or_claimed_stays(probe):
    standby = a_standby(probe)
    standby.add(ZERO, BY_ANN)
    probe.lose(ZERO)
    assert standby.look(0) == ()
    assert "could not be read" in standby.reasons[ZERO.id]
    unclaimed = a_standby(probe, BrokenClaims())
    unclaimed.add(ONE, BY_ANN)
    assert unclaimed.look(0) == ()
    assert unclaimed.reasons[ONE.id] == "GPU 1 cannot be claimed."


def test_is_taken_names_the_other(probe):
    standby = a_standby(probe)
    assert standby.is_taken(ZERO) is None
    probe.use(ZERO, ANN)
    assert standby.is_taken(ZERO) == BY_ANN


def test_own_processes_take_nothing(probe):
    standby = a_standby(probe, own_pids=frozenset({4242}))
    probe.use(ZERO, ANN)
    assert standby.is_taken(ZERO) is None


def test_lost_device_and_cpu_slot_are_not_taken(probe):
    probe.lose(ZERO)
    (slot,) = CpuProbe(1, n_cores=1).devices()
    assert a_standby(probe).is_taken(ZERO) is None
    assert a_standby(probe).is_taken(slot) is None


def test_own_process_tree_has_this_process():
    assert os.getpid() in own_process_tree()
