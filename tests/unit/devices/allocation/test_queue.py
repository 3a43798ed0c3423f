"""Narrow trials fill the gaps, and no trial is starved."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import GIB, a_gpu
from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.width import ONE, WHOLE, Devices, MemoryShare, Share, Width

GPUS = tuple(a_gpu(index) for index in range(4))
TWO, FOUR, FIVE = (Devices(n_devices=n) for n in (2, 4, 5))
HALF = Share(parts=WHOLE // 2)
MOST = Share(parts=WHOLE * 8 // 10)


def start(line: WaitingLine[str], pool: DevicePool, may_use=lambda item, device: True):
    return line.start_next(pool, name=str, may_use=may_use)


def start_all(line: WaitingLine[str], pool: DevicePool) -> dict[str, Lease]:
    started = {}
    while (one := start(line, pool)) is not None:
        started[one[0]] = one[1]
    return started


def a_line(*items: tuple[str, Width], patience: float = 1.0) -> WaitingLine[str]:
    line = WaitingLine[str](patience)
    for item, width in items:
        line.put(item, width)
    return line


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


# -- with known durations ------------------------------------------------------------------------


class Scene:
    """A line that knows durations, a pool of four, and a clock that the test moves."""

    def __init__(self, lengths: Sequence[float] = (100.0,) * 10) -> None:
        self.now_s = 0.0
        self.pool = DevicePool(GPUS)
        self.line = WaitingLine[str](durations=Durations(lambda: self.now_s))
        for length in lengths:
            self.line.put("ended", ONE)
            lease = self.start()["ended"]
            self.now_s += length
            self.end(lease)

    def start(self) -> dict[str, Lease]:
        return start_all(self.line, self.pool)

    def end(self, lease: Lease) -> None:
        self.pool.release(lease)
        self.line.ended(lease)

    def put(self, **widths: Width) -> None:
        for item, width in widths.items():
            self.line.put(item, width)


def test_narrow_trial_that_would_end_later_does_not_start_on_gathered_devices():
    scene = Scene()
    scene.put(a=TWO)
    scene.start()
    scene.now_s += 30
    scene.put(wide=FOUR, b=ONE)
    assert scene.start() == {}
    assert not scene.line.has_room_for(scene.pool, [ONE])
    item, kept = scene.line.gathering(scene.pool) or ("", None)
    assert item == "wide"
    assert kept is not None
    assert kept.left_s == pytest.approx(70, rel=0.02)


def test_narrow_trial_that_ends_first_starts_on_gathered_devices():
    scene = Scene([10.0] * 30 + [1000.0] * 10)
    scene.put(a=ONE)
    scene.start()
    scene.now_s += 30
    scene.put(wide=FOUR, b=ONE)
    assert list(scene.start()) == ["b"]
    assert scene.line.has_room_for(scene.pool, [ONE])


def test_wide_trials_follow_each_other_on_devices_that_were_emptied():
    scene = Scene()
    scene.put(wide=FOUR)
    started = scene.start()
    scene.now_s += 30
    scene.put(a=ONE, b=TWO, wide_2=FOUR)
    scene.now_s += 70
    scene.end(started["wide"])
    assert list(scene.start()) == ["wide_2"]


def test_wide_trials_pass_a_narrow_one_for_no_longer_than_the_longest_attempt():
    scene = Scene()
    scene.put(wide=FOUR)
    started = scene.start()
    scene.put(a=ONE)
    starts = []
    while not starts or starts[-1] != "a":
        assert scene.start() == {}
        scene.put(wide=FOUR)
        scene.now_s += 50
        scene.end(started.popitem()[1])
        started = scene.start()
        starts += started
    assert starts == ["wide", "wide", "a"]


def test_item_put_first_is_not_passed_by_a_wider_one():
    scene = Scene()
    scene.put(b=TWO)
    scene.line.put("retry", ONE, is_first=True)
    assert list(scene.start()) == ["retry", "b"]


def test_devices_that_are_likely_to_be_free_soonest_are_gathered():
    scene = Scene()
    scene.put(a=TWO)
    scene.start()
    scene.now_s += 90
    scene.put(b=TWO)
    scene.start()
    scene.put(wide=TWO)
    assert scene.start() == {}
    _, kept = scene.line.gathering(scene.pool) or ("", None)
    assert kept is not None
    assert kept.left_s == pytest.approx(10, rel=0.02)


def test_on_one_device_nothing_depends_on_measured_times():
    now_s = 0.0
    line = WaitingLine[str](durations=Durations(lambda: now_s))
    pool = DevicePool(GPUS[:1])
    for _ in range(12):
        line.put("ended", ONE)
        lease = start_all(line, pool)["ended"]
        pool.release(lease)
        line.ended(lease)
    for item, width in (("a", HALF), ("whole", ONE), ("b", HALF)):
        line.put(item, width)
    assert list(start_all(line, pool)) == ["a", "b"]


# -- on a virtual clock --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A trial that comes to wait, and how long it will last."""

    at: int
    width: Width
    duration: int


def waits_of_oldest(
    line: WaitingLine[int],
    pool: DevicePool,
    arrivals: Sequence[Arrival],
    clock: list[int] | None = None,
) -> dict[int, int]:
    """Runs all; gives how long each waited from when it was the oldest to its start."""
    clock = [0] if clock is None else clock
    events = [(arrival.at, number, None) for number, arrival in enumerate(arrivals)]
    heapq.heapify(events)
    oldest_since: dict[int, int] = {}
    waits: dict[int, int] = {}
    while events:
        now, number, lease = heapq.heappop(events)
        clock[0] = now
        if lease is None:
            line.put(number, arrivals[number].width)
        else:
            pool.release(lease)
            line.ended(lease)
        while True:
            oldest_since.setdefault(next(iter(line), -1), now)
            started = line.start_next(pool, name=str, may_use=lambda item, device: True)
            if started is None:
                break
            item, lease = started
            # One that passed the oldest never was it.
            waits[item] = now - oldest_since.get(item, now)
            end = (now + arrivals[item].duration, len(arrivals) + lease.number, lease)
            heapq.heappush(events, end)
    return waits


WIDTHS = st.one_of(
    st.builds(Devices, n_devices=st.integers(1, 4)),
    st.builds(Share, parts=st.integers(1, WHOLE)),
    st.builds(MemoryShare, memory_bytes=st.integers(1, 80 * GIB)),
)
ARRIVALS = st.lists(
    st.builds(Arrival, at=st.integers(0, 40), width=WIDTHS, duration=st.integers(1, 20)),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(arrivals=ARRIVALS, n_devices=st.integers(4, 6), patience=st.sampled_from([0, 1, math.inf]))
def test_oldest_starts_within_twice_the_longest_attempt(arrivals, n_devices, patience):
    pool = DevicePool([a_gpu(index) for index in range(n_devices)])
    waits = waits_of_oldest(WaitingLine(patience), pool, arrivals)
    longest = max(arrival.duration for arrival in arrivals)
    assert len(waits) == len(arrivals)
    assert max(waits.values()) <= (2 if patience else 1) * longest
    assert pool.free == pool.devices


MANY_ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at=st.integers(0, 60),
        width=WIDTHS,
        # Heavy tails: most are short, some are very long.
        duration=st.one_of(st.integers(1, 4), st.integers(1, 20), st.integers(1, 400)),
    ),
    min_size=15,
    max_size=80,
)


@settings(deadline=None)
@given(arrivals=MANY_ARRIVALS, n_devices=st.integers(4, 8), chance=st.sampled_from([0.0, 0.5, 0.9]))
def test_bound_of_two_longest_attempts_holds_with_known_durations(arrivals, n_devices, chance):
    clock = [0]
    durations = Durations(lambda: clock[0])
    line = WaitingLine[int](durations=durations, least_chance=chance)
    pool = DevicePool([a_gpu(index) for index in range(n_devices)])
    waits = waits_of_oldest(line, pool, arrivals, clock)
    assert len(waits) == len(arrivals)
    assert max(waits.values()) <= 2 * max(arrival.duration for arrival in arrivals)
    assert durations.are_known


@pytest.mark.parametrize("narrow", [ONE, HALF, Share(parts=1)], ids=str)
@pytest.mark.parametrize("wide", [FOUR, TWO, ONE, MOST], ids=str)
@pytest.mark.parametrize("patience", [0, 1, math.inf])
def test_endless_stream_of_narrow_trials_starves_no_wide_one(narrow, wide, patience):
    stream = [Arrival(at=at, width=narrow, duration=10) for at in range(100)]
    arrivals = [*stream, Arrival(at=10, width=wide, duration=10)]
    waits = waits_of_oldest(WaitingLine(patience), DevicePool(GPUS), arrivals)
    assert waits[100] <= (20 if patience else 10)
