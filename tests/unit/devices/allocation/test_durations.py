"""The durations of attempts are remembered in bounded memory."""

import pytest

from tests.fakes import a_gpu
from tuner.devices.allocation.durations import N_KEPT, Durations
from tuner.devices.allocation.gathering import gather
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import ONE, Devices

TWO = Devices(n_devices=2)


class World:
    """A pool, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pool = DevicePool([a_gpu(index) for index in range(4)])
        self.durations = Durations(lambda: self.now_s)

    def start(self, width=ONE) -> Lease:
        lease = self.pool.lease(width, "a")
        assert lease is not None
        self.durations.started(lease)
        return lease

    def end(self, lease: Lease) -> None:
        self.pool.release(lease)
        self.durations.ended(lease)

    def run(self, length_s: float, width=ONE) -> None:
        lease = self.start(width)
        self.now_s += length_s
        self.end(lease)


def test_durations_are_known_once_ten_have_ended():
    world = World()
    for number in range(10):
        assert not world.durations.are_known
        world.run(10.0 - number)
    assert world.durations.are_known
    assert list(world.durations.lengths_s(1)) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_only_the_newest_are_kept_and_the_longest_is_never_forgotten():
    world = World()
    world.run(10_000.0)
    for number in range(N_KEPT):
        world.run(1.0 + number % 7)
    assert len(world.durations.lengths_s(1)) == N_KEPT
    assert max(world.durations.lengths_s(1)) == 7
    assert world.durations.longest_s == 10_000


def test_width_has_its_own_durations_once_enough_of_it_have_ended():
    world = World()
    for _ in range(10):
        world.run(1.0)
    for _ in range(9):
        world.run(50.0, TWO)
    assert len(world.durations.lengths_s(2)) == 19
    world.run(50.0, TWO)
    assert set(world.durations.lengths_s(2)) == {50}
    assert set(world.durations.lengths_s(1)) == {1}


def test_attempt_that_runs_counts_with_its_age():
    world = World()
    first = world.start()
    world.now_s = 5.0
    world.start()
    world.now_s = 30.0
    assert world.durations.longest_s == 30
    assert [each.age_s for each in world.durations.running_on(world.pool.leased, world.pool)] == [
        30,
        25,
    ]
    world.end(first)
    assert world.durations.longest_s == 30


def test_release_of_a_lease_from_elsewhere_is_ignored():
    world = World()
    lease = world.pool.lease(ONE, "a")
    assert lease is not None
    world.durations.ended(lease)
    assert world.durations.longest_s == 0


def test_gathering_says_when_all_of_its_devices_are_free():
    world = World()
    lease = world.start(TWO)
    assert gather(lease.devices, world.pool, world.durations).left_s is None
    for _ in range(10):
        world.run(600.0)
    kept = gather(world.pool.devices, world.pool, world.durations)
    assert kept.n_devices == 4
    # It has lasted longer than all, and is expected to last as long again.
    assert kept.left_s == pytest.approx(6000, rel=0.02)
