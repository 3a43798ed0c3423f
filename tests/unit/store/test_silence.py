"""Dispatchers that cannot be checked are watched by the watcher's own monotonic clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tests.hosts import ALIVE, DEAD, ELSEWHERE
from tuner.store.records.dispatchers.silence import STALE_AFTER_S, Sights, watch_silent
from tuner.store.records.dispatchers.starts import OpenDispatcher, Sign
from tuner.store.records.provenance import HostFacts

AT = datetime(2026, 3, 1, 12)
Look = Callable[[float], Sequence[OpenDispatcher]]


def a_dispatcher(host: HostFacts, number: int = 1, beat_s: float = 0.0) -> OpenDispatcher:
    at = AT + timedelta(seconds=beat_s)
    return OpenDispatcher(id=number, process=host.process, started_at=AT, beat_at=at)


@dataclass(kw_only=True)
class Watched:
    silent: frozenset[Sign]
    took_s: float
    said: list[str] = field(default_factory=list)


def watch(look: Look) -> Watched:
    now_s, said = [1000.0], []

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    silent = watch_silent(
        lambda: look(now_s[0] - 1000.0),
        ALIVE.process,
        said.append,
        monotonic_s=lambda: now_s[0],
        sleep=sleep,
    )
    return Watched(silent=silent, took_s=now_s[0] - 1000.0, said=said)


def test_those_that_can_be_checked_are_not_watched():
    for found in ([], [a_dispatcher(DEAD)], [a_dispatcher(ALIVE)]):
        watched = watch(lambda _, found=found: found)
        assert watched == Watched(silent=frozenset(), took_s=0.0)


def test_one_that_is_silent_for_a_minute_of_watching_is_dead():
    one = a_dispatcher(ELSEWHERE)
    watched = watch(lambda _: [one])
    assert (watched.silent, watched.took_s) == ({one.sign}, STALE_AFTER_S)
    (said,) = watched.said
    assert "on there (pid" in said
    assert "up to 60 s" in said


def test_a_sign_of_life_ends_the_watch_whatever_clock_it_was_written_by():
    for beat_s in (10.0, -36_000.0):
        watched = watch(lambda at_s, b=beat_s: [a_dispatcher(ELSEWHERE, beat_s=b * (at_s > 9))])
        assert (watched.silent, watched.took_s) == (frozenset(), 10.0)


def test_one_that_ends_meanwhile_is_not_waited_for():
    watched = watch(lambda at_s: [a_dispatcher(ELSEWHERE)] if at_s < 20 else [])
    assert (watched.silent, watched.took_s) == (frozenset(), 20.0)


def test_one_that_comes_later_is_watched_from_then_on():
    first, second = a_dispatcher(ELSEWHERE), a_dispatcher(ELSEWHERE, 2)
    watched = watch(lambda at_s: [first] if at_s < 20 else [first, second])
    assert watched.silent == {first.sign, second.sign}
    assert watched.took_s == 20 + STALE_AFTER_S


def test_a_record_of_an_older_tuner_is_watched():
    process = replace(ALIVE.process, boot_id="", pid_namespace="", start_ticks=-1)
    one = OpenDispatcher(id=1, process=process, started_at=AT, beat_at=AT)
    assert watch(lambda _: [one]).silent == {one.sign}


LOOK_EVERY_S = 5.0
SIGN = Sign(1, AT)


def silent_after(sights: Sights, from_s: float, *, fails_every_s: float = 1e9) -> float:
    """Seconds of looks from then on until the dispatcher, which never writes, counts as dead."""
    now_s, failed_at_s = from_s, from_s
    while not sights.is_silent(SIGN, now_s):
        now_s += LOOK_EVERY_S
        if now_s - failed_at_s >= fails_every_s:
            sights.interrupt()
            failed_at_s = now_s
            now_s += LOOK_EVERY_S
    return now_s - from_s


def test_time_without_looks_is_an_outage_in_which_it_could_not_write_either():
    for outage_s in (70.0, 3600.0):
        sights = Sights()
        for now_s in (0.0, 5.0, 10.0):
            assert not sights.is_silent(SIGN, now_s)
        assert not sights.is_silent(SIGN, 10.0 + outage_s)
        left_s = silent_after(sights, 10.0 + outage_s)
        assert STALE_AFTER_S / 2 <= left_s < STALE_AFTER_S


def test_failed_looks_count_for_nothing_and_do_not_begin_the_minute_anew():
    assert silent_after(Sights(), 0.0) == STALE_AFTER_S
    took_s = silent_after(Sights(), 0.0, fails_every_s=25.0)
    assert STALE_AFTER_S < took_s <= STALE_AFTER_S + 2 * 3 * LOOK_EVERY_S


def test_a_sign_of_life_begins_the_minute_anew_also_after_a_failed_look():
    sights = Sights()
    sights.is_silent(SIGN, 0.0)
    sights.interrupt()
    assert not sights.is_silent(Sign(1, AT + timedelta(seconds=1)), 50.0)
    assert not sights.is_silent(SIGN, 50.0 + STALE_AFTER_S)
