"""The pool never hands a part of a device out twice and never loses one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from tests.fakes import GIB, a_gpu
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import (
    ONE,
    WHOLE,
    Devices,
    MemoryShare,
    Share,
    Width,
    n_devices_of,
    parts_of,
    parts_on,
)

GPUS = tuple(a_gpu(index) for index in range(4))
TWO = Devices(n_devices=2)
HALF = Share(parts=WHOLE // 2)
TENTH = Share(parts=parts_of(0.1))


def a_lease(pool: DevicePool, width: Width, **options) -> Lease:
    lease = pool.lease(width, "a", **options)
    assert lease is not None
    return lease


def test_lease_takes_free_devices_in_index_order():
    pool = DevicePool(GPUS[::-1])
    lease = a_lease(pool, TWO)
    assert (lease.attempt_id, lease.devices, lease.parts) == ("a", GPUS[:2], WHOLE)
    assert lease.is_whole
    assert lease.n_devices_held == 2
    assert (pool.free, pool.leased, pool.leases) == (GPUS[2:], GPUS[:2], (lease,))


def test_lease_of_more_than_is_free_takes_nothing():
    pool = DevicePool(GPUS)
    a_lease(pool, Devices(n_devices=3))
    assert not pool.fits(TWO)
    assert pool.lease(TWO, "b") is None
    assert pool.free == GPUS[3:]


def test_lease_numbers_count_up():
    pool = DevicePool(GPUS)
    first = a_lease(pool, ONE)
    pool.release(first)
    pool.lease(Devices(n_devices=9), "too wide")
    assert (first.number, a_lease(pool, ONE).number) == (1, 2)


@pytest.mark.parametrize("n_devices", [0, -1])
def test_lease_of_no_device_is_refused(n_devices):
    with pytest.raises(ValueError, match="at least 1 device"):
        DevicePool(GPUS).lease(Devices(n_devices=n_devices), "a")


@pytest.mark.parametrize("parts", [0, WHOLE + 1])
def test_lease_of_no_part_or_more_than_all_is_refused(parts):
    with pytest.raises(ValueError, match="1 to 10000 parts"):
        DevicePool(GPUS).lease(Share(parts=parts), "a")


def test_ten_tenths_share_a_device_and_the_eleventh_takes_another():
    pool = DevicePool(GPUS)
    tenths = [a_lease(pool, TENTH) for _ in range(11)]
    assert [lease.devices[0].index for lease in tenths] == [0] * 10 + [1]
    assert pool.leases_on(GPUS[0]) == tuple(tenths[:10])
    assert pool.free_parts(GPUS[0]) == 0
    assert sum(lease.n_devices_held for lease in tenths[:10]) == pytest.approx(1)


def test_shares_of_three_and_eight_tenths_never_share_a_device():
    pool = DevicePool(GPUS[:1])
    a_lease(pool, Share(parts=parts_of(0.3)))
    assert pool.lease(Share(parts=parts_of(0.8)), "b") is None
    assert pool.free_parts(GPUS[0]) == parts_of(0.7)


def test_part_goes_to_the_fullest_device_that_has_room():
    pool = DevicePool(GPUS)
    for tenths in (3, 8, 9):
        a_lease(pool, Share(parts=tenths * TENTH.parts))
    assert a_lease(pool, Share(parts=2 * TENTH.parts)).devices == (GPUS[1],)


def test_whole_device_is_never_one_with_parts_on_it():
    pool = DevicePool(GPUS[:1])
    a_lease(pool, TENTH)
    assert pool.lease(ONE, "b") is None
    assert pool.free == ()


def test_memory_takes_its_part_of_a_gpu_that_is_large_enough():
    small, large = a_gpu(0, memory_bytes=24 * GIB), a_gpu(1, memory_bytes=80 * GIB)
    pool = DevicePool([small, large])
    lease = a_lease(pool, MemoryShare(memory_bytes=40 * GIB))
    assert (lease.devices, lease.parts, lease.is_whole) == ((large,), WHOLE // 2, False)
    assert a_lease(pool, MemoryShare(memory_bytes=20 * GIB)).devices == (large,)
    assert a_lease(pool, MemoryShare(memory_bytes=24 * GIB)).is_whole


def test_may_use_is_asked_once_of_each_device_that_would_be_taken():
    asked = []

    def is_even(device):
        asked.append(device.index)
        return device.index % 2 == 0

    pool = DevicePool(GPUS)
    assert a_lease(pool, TWO, may_use=is_even).devices == (GPUS[0], GPUS[2])
    assert asked == [0, 1, 2]


def test_may_use_is_not_asked_where_too_little_is_free():
    asked = []
    pool = DevicePool(GPUS)
    assert pool.lease(Devices(n_devices=5), "a", may_use=asked.append) is None
    assert asked == []


def test_may_use_may_set_a_device_aside():
    pool = DevicePool(GPUS)

    def is_left_alone(device):
        if device == GPUS[0]:
            pool.set_aside(device)
        return device not in pool.aside

    assert a_lease(pool, TWO, may_use=is_left_alone).devices == GPUS[1:3]
    assert pool.free == GPUS[3:]


def test_lease_where_no_device_may_be_used_takes_nothing():
    pool = DevicePool(GPUS)
    assert pool.lease(HALF, "a", may_use=lambda _: False) is None
    assert pool.free == GPUS


def test_lease_avoids_devices():
    pool = DevicePool(GPUS)
    a_lease(pool, HALF)
    avoid = {GPUS[0].id, GPUS[1].id}
    assert a_lease(pool, HALF, avoid=avoid).devices == (GPUS[2],)
    assert pool.fits(TWO)
    assert not pool.fits(TWO, avoid=avoid)


def test_release_twice_is_refused():
    pool = DevicePool(GPUS)
    lease = a_lease(pool, ONE)
    pool.release(lease)
    pool.lease(ONE, "b")
    with pytest.raises(ValueError, match="Lease 1 of attempt a is not held"):
        pool.release(lease)
    assert pool.leased == GPUS[:1]


def test_resize_makes_room_for_others():
    pool = DevicePool(GPUS[:1])
    shrunk = pool.resize(a_lease(pool, ONE), HALF)
    assert (shrunk.number, shrunk.parts, shrunk.devices) == (1, HALF.parts, GPUS[:1])
    other = a_lease(pool, HALF)
    assert pool.leases_on(GPUS[0]) == (shrunk, other)
    pool.release(other)
    assert pool.resize(shrunk, ONE).is_whole


def test_lease_as_it_was_before_its_resize_is_not_held():
    pool = DevicePool(GPUS)
    before = a_lease(pool, ONE)
    pool.resize(before, HALF)
    with pytest.raises(ValueError, match="not held"):
        pool.release(before)
    with pytest.raises(ValueError, match="not held"):
        pool.resize(before, TENTH)


@pytest.mark.parametrize(
    "width", [Share(parts=6000), TWO, MemoryShare(memory_bytes=81 * GIB)], ids=str
)
def test_resize_to_what_does_not_fit_is_refused(width):
    pool = DevicePool(GPUS)
    lease = a_lease(pool, HALF)
    a_lease(pool, HALF)
    with pytest.raises(ValueError, match="Lease 1 of attempt a cannot become"):
        pool.resize(lease, width)
    assert pool.leases_on(GPUS[0])[0] == lease


def test_resize_to_no_part_is_refused():
    pool = DevicePool(GPUS)
    with pytest.raises(ValueError, match="1 to 10000 parts"):
        pool.resize(a_lease(pool, HALF), Share(parts=0))


def test_last_part_of_a_device_is_handed_out():
    pool = DevicePool(GPUS[:1])
    a_lease(pool, Share(parts=WHOLE - 1))
    assert a_lease(pool, Share(parts=1)).devices == GPUS[:1]


def test_resize_of_a_lease_on_several_devices_is_refused():
    pool = DevicePool(GPUS)
    with pytest.raises(ValueError, match="cannot become"):
        pool.resize(a_lease(pool, TWO), HALF)


def test_withdrawn_device_is_gone_and_its_lease_can_be_released():
    pool = DevicePool(GPUS)
    lease = a_lease(pool, TWO)
    pool.withdraw(GPUS[0])
    assert pool.devices == GPUS[1:]
    assert pool.leased == (GPUS[1],)
    pool.release(lease)
    assert pool.free == GPUS[1:]
    assert pool.free_parts(GPUS[0]) == 0


def test_device_joins_and_one_that_left_may_come_back_elsewhere():
    pool = DevicePool(GPUS[:2])
    lease = a_lease(pool, ONE)
    pool.withdraw(GPUS[0])
    moved = replace(GPUS[0], index=7)
    pool.add(moved)
    assert pool.leased == (moved,)
    pool.release(lease)
    assert pool.devices == pool.free == (GPUS[1], moved)


def test_device_set_aside_is_not_handed_out_and_keeps_its_leases():
    pool = DevicePool(GPUS[:2])
    lease = a_lease(pool, HALF)
    pool.set_aside(GPUS[0])
    pool.set_aside(GPUS[0])
    assert (pool.aside, pool.leased, pool.free) == (GPUS[:1], GPUS[:1], GPUS[1:2])
    assert not pool.hands_out(GPUS[0])
    assert a_lease(pool, HALF).devices == (GPUS[1],)
    assert pool.lease(ONE, "c") is None
    pool.release(lease)
    assert pool.free == ()
    pool.restore(GPUS[0])
    pool.restore(GPUS[0])
    assert pool.free == GPUS[:1]
    assert pool.aside == ()


def test_lease_on_a_device_set_aside_shrinks_but_does_not_grow():
    pool = DevicePool(GPUS[:1])
    lease = a_lease(pool, HALF)
    pool.set_aside(GPUS[0])
    smaller = pool.resize(lease, TENTH)
    with pytest.raises(ValueError, match="cannot become"):
        pool.resize(smaller, HALF)


@pytest.mark.parametrize("action", ["withdraw", "set_aside", "restore"])
def test_device_that_is_not_in_the_pool_is_refused(action):
    with pytest.raises(ValueError, match=r"GPU 3 \(.*\) is not in the pool"):
        getattr(DevicePool(GPUS[:3]), action)(GPUS[3])


def test_pool_with_a_device_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        DevicePool([GPUS[0], GPUS[0]])


@pytest.mark.parametrize(
    ("width", "fits"),
    [
        (Devices(n_devices=4), True),
        (Devices(n_devices=5), False),
        (HALF, True),
        (MemoryShare(memory_bytes=80 * GIB), True),
        (MemoryShare(memory_bytes=81 * GIB), False),
    ],
    ids=str,
)
def test_what_can_ever_fit_is_judged_on_all_devices(width, fits):
    pool = DevicePool(GPUS)
    pool.set_aside(GPUS[0])
    a_lease(pool, TWO)
    assert pool.can_ever_fit(width) is fits


def test_nothing_ever_fits_a_pool_without_devices():
    assert not DevicePool([]).can_ever_fit(TENTH)


ALL = tuple(a_gpu(index, memory_bytes=(24 + 56 * (index % 2)) * GIB) for index in range(6))
SHARES = st.one_of(
    st.builds(Share, parts=st.sampled_from([1, 1000, 2500, 3000, 5000, 8000, WHOLE])),
    st.builds(MemoryShare, memory_bytes=st.sampled_from([1, 8 * GIB, 24 * GIB, 30 * GIB])),
)
WIDTHS = st.one_of(st.builds(Devices, n_devices=st.integers(1, 4)), SHARES)


class PoolMachine(RuleBasedStateMachine):
    """Anything that may happen to a pool, beside what must be true after it."""

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.pool = DevicePool(ALL[:4])
        self.present = {device.id: device for device in ALL[:4]}
        self.aside = set()
        self.held = {}
        self.newest = 0

    def on(self, device):
        return [lease for lease in self.held.values() if device in lease.devices]

    def room(self, device):
        if device.id not in self.present or device.id in self.aside:
            return 0
        return WHOLE - sum(lease.parts for lease in self.on(device))

    def fits(self, width):
        large = [each for each in self.present.values() if parts_on(width, each) is not None]
        roomy = [each for each in large if parts_on(width, each) <= self.room(each)]
        return len(roomy) >= n_devices_of(width)

    @rule(target=leases, width=WIDTHS)
    def lease(self, width):
        should_fit = self.fits(width)
        assert self.pool.fits(width) is should_fit
        lease = self.pool.lease(width, "a")
        assert (lease is not None) is should_fit
        if lease is None:
            return multiple()
        assert lease.number > self.newest
        assert len(set(lease.devices)) == n_devices_of(width)
        assert {lease.parts} == {parts_on(width, device) for device in lease.devices}
        self.newest = lease.number
        self.held[lease.number] = lease
        return lease.number

    @rule(number=leases)
    def release(self, number):
        if number in self.held:
            self.pool.release(self.held.pop(number))

    @rule(number=leases, width=SHARES)
    def resize(self, number, width):
        lease = self.held.get(number)
        if lease is None or len(lease.devices) > 1:
            return
        parts = parts_on(width, lease.devices[0])
        if parts is not None and parts <= lease.parts + self.room(lease.devices[0]):
            self.held[number] = self.pool.resize(lease, width)
            assert self.held[number].parts == parts
        else:
            with pytest.raises(ValueError, match="cannot become"):
                self.pool.resize(lease, width)

    @rule(device=st.sampled_from(ALL))
    def add_or_withdraw(self, device):
        if device.id in self.present:
            self.pool.withdraw(device)
            del self.present[device.id]
            self.aside.discard(device.id)
        else:
            self.pool.add(device)
            self.present[device.id] = device

    @rule(device=st.sampled_from(ALL))
    def set_aside_or_restore(self, device):
        if device.id in self.aside:
            self.pool.restore(device)
            self.aside.discard(device.id)
        elif device.id in self.present:
            self.pool.set_aside(device)
            self.aside.add(device.id)

    @invariant()
    def nothing_is_leased_twice(self):
        for device in ALL:
            leases = self.on(device)
            assert sum(lease.parts for lease in leases) <= WHOLE
            assert self.pool.leases_on(device) == tuple(leases)
            assert self.pool.free_parts(device) == self.room(device)

    @invariant()
    def free_leased_and_aside_are_all(self):
        pool = self.pool
        assert set(pool.devices) == set(self.present.values())
        assert set(pool.free) | set(pool.leased) | set(pool.aside) == set(pool.devices)
        assert not set(pool.free) & (set(pool.leased) | set(pool.aside))
        assert {device.id for device in pool.aside} == self.aside
        assert set(pool.leased) == {d for d in self.present.values() if self.on(d)}
        for listed in (pool.devices, pool.free, pool.leased, pool.aside):
            assert list(listed) == sorted(listed, key=lambda device: device.index)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestPoolMachine = PoolMachine.TestCase
