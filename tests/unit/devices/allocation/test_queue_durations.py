"""Where durations are known they decide who passes; the oldest waits for two longest at most."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import GIB, a_gpu
from tests.unit.devices.allocation.waiting_lines import FOUR, GPUS, HALF, MOST, TWO, start_all
from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.width import ONE, WHOLE, Devices, MemoryShare, Share, Width


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
