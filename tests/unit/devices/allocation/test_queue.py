"""Narrow trials fill the gaps, and no trial is starved."""

from __future__ import annotations

import pytest

from tests.unit.devices.allocation.waiting_lines import (
    FIVE,
    FOUR,
    GPUS,
    HALF,
    MOST,
    TWO,
    a_line,
    start,
    start_all,
)
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.width import ONE, WHOLE, Share


def test_oldest_starts_first_with_a_lease_in_its_name():
    line, pool = a_line(("a", TWO), ("b", ONE)), DevicePool(GPUS)
    started = start(line, pool)
    assert started is not None
    item, lease = started
    assert (item, lease.attempt_id, lease.devices) == ("a", "a", GPUS[:2])
    assert line
    assert list(start_all(line, pool)) == ["b"]
    assert len(line) == 0
    assert not line
    assert line.unplaceable(pool) == []
    assert start(line, pool) is None


def test_younger_that_fits_passes_the_oldest_that_does_not():
    line, pool = a_line(("a", TWO), ("wide", FOUR), ("b", ONE), ("c", ONE)), DevicePool(GPUS)
    assert list(start_all(line, pool)) == ["a", "b", "c"]
    assert list(line) == ["wide"]


def test_after_as_much_as_the_pool_passed_the_oldest_its_devices_are_kept():
    line, pool = a_line(("long", ONE), ("wide", FOUR)), DevicePool(GPUS)
    start_all(line, pool)
    for number in range(4):
        line.put(f"narrow {number}", ONE)
        pool.release(*start_all(line, pool).values())
    line.put("narrow 4", ONE)
    assert start(line, pool) is None
    assert pool.free == GPUS[1:]
    assert not line.has_room_for(pool, [ONE])


def test_a_wide_one_that_passes_counts_by_its_devices():
    line, pool = a_line(("long", ONE), ("wide", FOUR)), DevicePool(GPUS)
    start_all(line, pool)
    for number in range(2):
        line.put(f"wider {number}", TWO)
        pool.release(*start_all(line, pool).values())
    line.put("narrow", ONE)
    assert start(line, pool) is None


def test_patience_ends_when_all_have_ended_that_ran_before():
    line, pool = a_line(("old", ONE), ("wide", FOUR), ("b", HALF)), DevicePool(GPUS)
    started = start_all(line, pool)
    line.put("c", HALF)
    pool.release(started["old"])
    assert start(line, pool) is None
    assert list(line) == ["wide", "c"]


def test_without_patience_devices_are_kept_at_once():
    line, pool = a_line(("a", ONE), ("wide", FOUR), ("b", ONE), patience=0), DevicePool(GPUS)
    assert list(start_all(line, pool)) == ["a"]


def test_others_start_beside_the_reserved_devices():
    line, pool = (
        a_line(("a", ONE), ("b", ONE), ("c", ONE), ("d", HALF), patience=0),
        DevicePool(GPUS),
    )
    start_all(line, pool)
    for item, width in (("wide", TWO), ("e", ONE), ("f", HALF)):
        line.put(item, width)
    assert list(start_all(line, pool)) == ["f"]


def test_no_part_of_a_reserved_device_is_leased():
    line, pool = a_line(("a", HALF), ("wide", ONE), ("b", HALF), patience=0), DevicePool(GPUS[:1])
    assert list(start_all(line, pool)) == ["a"]


def test_device_that_is_free_takes_the_place_of_one_that_is_waited_for():
    line, pool = a_line(*[(name, ONE) for name in "abcd"], patience=0), DevicePool(GPUS)
    started = start_all(line, pool)
    line.put("wide", TWO)
    line.put("narrow", ONE)
    assert start(line, pool) is None
    pool.release(started["d"])
    assert start(line, pool) is None
    pool.release(started["c"])
    assert start_all(line, pool)["wide"].devices == GPUS[2:]


def test_device_that_is_waited_for_stays_reserved_until_it_is_free():
    pool = DevicePool(GPUS[:2])
    third, other = Share(parts=WHOLE // 3), {GPUS[0].id}
    oldest = pool.lease(third, "on GPU 0")
    pool.lease(third, "on GPU 1", avoid=other)
    pool.lease(third, "on GPU 0 too", avoid={GPUS[1].id})
    line = a_line(("wide", ONE), ("a", third), patience=0)
    assert start_all(line, pool)["a"].devices == (GPUS[1],)
    assert oldest is not None
    pool.release(oldest)
    line.put("b", third)
    assert start_all(line, pool)["b"].devices == (GPUS[1],)


def test_device_that_is_leased_whole_is_reserved_rather_than_one_with_room():
    line, pool = a_line(("a", HALF), ("b", ONE), ("wide", ONE), patience=0), DevicePool(GPUS[:2])
    start_all(line, pool)
    line.put("c", HALF)
    assert start_all(line, pool)["c"].devices == GPUS[:1]


@pytest.mark.parametrize("leave", [DevicePool.set_aside, DevicePool.withdraw])
def test_reserved_device_that_leaves_is_replaced(leave):
    line, pool = a_line(("a", ONE), ("b", HALF), ("wide", ONE), patience=0), DevicePool(GPUS[:2])
    started = start_all(line, pool)
    leave(pool, started["a"].devices[0])
    line.put("c", HALF)
    assert start(line, pool) is None
    pool.release(started["b"])
    assert list(start_all(line, pool)) == ["wide"]


def test_oldest_that_lacks_devices_for_now_keeps_none_from_others():
    line, pool = a_line(("wide", FOUR), ("a", ONE), ("b", ONE), patience=0), DevicePool(GPUS)
    pool.set_aside(GPUS[3])
    assert list(start_all(line, pool)) == ["a", "b"]
    pool.restore(GPUS[3])
    line.put("c", ONE)
    assert start(line, pool) is None


def test_oldest_that_may_use_no_device_keeps_none_from_others():
    line, pool = a_line(("picky", ONE), ("a", HALF), patience=0), DevicePool(GPUS[:1])
    started = start(line, pool, may_use=lambda item, device: item != "picky")
    assert started is not None
    assert started[0] == "a"
    assert list(line) == ["picky"]


def test_device_that_the_oldest_may_not_use_is_not_kept_for_it():
    line, pool = a_line(("a", ONE), patience=0), DevicePool(GPUS[:3])
    start_all(line, pool)
    for item, width in (("picky", TWO), ("b", ONE)):
        line.put(item, width)
    asked = []

    def may_use(item, device):
        asked.append((item, device.index))
        return (item, device.index) != ("picky", 2)

    started = start(line, pool, may_use=may_use)
    assert started is not None
    assert (started[0], started[1].devices) == ("b", GPUS[2:3])
    assert asked == [("picky", 1), ("picky", 2), ("b", 2)]


def test_part_waits_for_room_on_one_device():
    line = a_line(*[(f"half {number}", HALF) for number in range(8)], ("part", MOST), patience=0)
    pool = DevicePool(GPUS)
    started = start_all(line, pool)
    line.put("late", HALF)
    pool.release(started["half 0"])
    assert start(line, pool) is None
    pool.release(started["half 2"])
    assert list(start_all(line, pool)) == ["late"]
    pool.release(started["half 1"])
    assert list(start_all(line, pool)) == ["part"]


def test_may_use_is_asked_of_the_item_only_where_it_fits():
    line, pool = a_line(("a", ONE), ("wide", FOUR), ("b", ONE)), DevicePool(GPUS)
    asked = []

    def note(item, device):
        asked.append((item, device.index))
        return True

    while start(line, pool, may_use=note) is not None:
        pass
    assert asked == [("a", 0), ("b", 1)]


def test_items_put_first_go_ahead_in_their_order():
    line = a_line(("a", ONE), ("b", TWO))
    for item in ("retry 1", "retry 2"):
        line.put(item, ONE, is_first=True)
    assert list(line) == ["retry 1", "retry 2", "a", "b"]
    assert list(start_all(line, DevicePool(GPUS))) == ["retry 1", "retry 2", "a"]


def test_item_put_first_waits_for_the_one_whose_turn_it_is():
    line, pool = a_line(("a", ONE), ("wide", FOUR), patience=0), DevicePool(GPUS)
    started = start_all(line, pool)
    line.put("retry", ONE, is_first=True)
    assert line.unplaceable(pool) == []
    assert start(line, pool) is None
    pool.release(started["a"])
    assert list(start_all(line, pool)) == ["wide"]


def test_take_all_empties_the_line_and_ends_the_turn():
    line, pool = a_line(("a", ONE), ("wide", FOUR), ("b", ONE), patience=0), DevicePool(GPUS)
    start_all(line, pool)
    assert line.take_all() == ["wide", "b"]
    assert len(line) == 0
    line.put("c", ONE)
    assert list(start_all(line, pool)) == ["c"]


def test_items_that_can_never_fit_are_taken_out():
    items = (("a", ONE), ("wide", FOUR), ("b", ONE), ("wider", FIVE), ("wide 2", FOUR))
    line, pool = a_line(*items, patience=0), DevicePool(GPUS)
    assert line.unplaceable(pool) == ["wider"]
    assert list(start_all(line, pool)) == ["a"]
    pool.withdraw(GPUS[3])
    assert line.unplaceable(pool) == ["wide", "wide 2"]
    assert list(start_all(line, pool)) == ["b"]


def test_room_is_judged_by_width():
    pool = DevicePool(GPUS[:2])
    line = a_line(("a", ONE), ("b", HALF))
    assert line.has_room_for(pool, [TWO])
    start_all(line, pool)
    assert not line.has_room_for(pool, [ONE, TWO])
    assert line.has_room_for(pool, [ONE, HALF])
