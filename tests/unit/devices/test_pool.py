"""The pool never hands a device out twice and never loses one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_gpu
from tuner.devices.pool import DevicePool, Lease

GPUS = tuple(a_gpu(index) for index in range(4))


def test_lease_takes_the_first_free_devices_in_order():
    pool = DevicePool(GPUS)
    lease = pool.lease(2, "a")
    assert lease is not None
    assert (lease.attempt_id, lease.devices) == ("a", GPUS[:2])
    assert pool.free == GPUS[2:]
    assert pool.leased == GPUS[:2]
    assert set(pool.leases.values()) == {lease}


def test_lease_of_more_than_is_free_takes_nothing():
    pool = DevicePool(GPUS)
    assert pool.lease(3, "a") is not None
    assert pool.lease(2, "b") is None
    assert pool.free == GPUS[3:]


def test_lease_after_release_fills_the_gap_first():
    pool = DevicePool(GPUS)
    first = pool.lease(1, "a")
    pool.lease(1, "b")
    assert first is not None
    pool.release(first)
    again = pool.lease(2, "c")
    assert again is not None
    assert again.devices == (GPUS[0], GPUS[2])
    assert again.number == 3


@pytest.mark.parametrize("n_devices", [0, -1])
def test_lease_of_no_device_is_refused(n_devices):
    with pytest.raises(ValueError, match="at least 1 device"):
        DevicePool(GPUS).lease(n_devices, "a")


def test_release_twice_is_refused():
    pool = DevicePool(GPUS)
    lease = pool.lease(1, "a")
    assert lease is not None
    pool.release(lease)
    pool.lease(1, "b")
    with pytest.raises(ValueError, match="Lease 1 of attempt a is not held"):
        pool.release(lease)
    assert pool.leased == GPUS[:1]


def test_pool_with_a_device_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        DevicePool([GPUS[0], GPUS[0]])


@given(
    n_devices=st.integers(0, 6),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=30),
)
def test_free_and_leased_are_disjoint_and_sum_to_all(n_devices, steps):
    pool = DevicePool([a_gpu(index) for index in range(n_devices)])
    held: list[Lease] = []
    for number, (is_lease, size) in enumerate(steps):
        if is_lease:
            n_free = len(pool.free)
            lease = pool.lease(size, f"attempt-{number}")
            assert (lease is None) == (n_free < size)
            held += [lease] if lease else []
        elif held:
            pool.release(held.pop(size % len(held)))
        assert not set(pool.free) & set(pool.leased)
        assert set(pool.free) | set(pool.leased) == set(pool.devices)
        assert len({lease.number for lease in held}) == len(held)
        in_leases = [device for lease in held for device in lease.devices]
        assert sorted(in_leases, key=pool.devices.index) == list(pool.leased)
