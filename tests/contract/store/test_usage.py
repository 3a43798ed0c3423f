"""What devices did is written once, and rolled up without losing anything, on every database."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.databases import SERVERS
from tests.hosts import DEAD, ELSEWHERE, with_process
from tests.integration.store.recorder.recorded import GPUS, NOW, Store, later, lease
from tuner.devices.idle_causes import IdleCause, IdleSpan
from tuner.devices.usage.tally import FIGURES, MAXIMA, Tally
from tuner.store.records.recorder import Recorder
from tuner.store.records.usage import roll_up
from tuner.store.schema.models import AttemptUsageRow, IdleRow, UsageRow, table_of

#: A multiple of an hour.
NOW_S = int(NOW.timestamp())


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.database.close()


def rows(store: Store, table: type[UsageRow | AttemptUsageRow | IdleRow]) -> list[dict[str, int]]:
    with store.database.engine.connect() as connection:
        query = sa.select(table_of(table)).order_by(*table_of(table).primary_key.columns)
        return [dict(row) for row in connection.execute(query).mappings()]


def a_tally(dice: random.Random) -> Tally:
    """Large figures: what a MIG slice does not give is None."""
    values = {name: dice.randrange(2**31) for name in FIGURES}
    for name in ("pcie_rx_kib", "nvlink_tx_kib", "memory_mib_ms", "energy_mj"):
        values[name] = dice.randrange(2**50)
    tally = Tally(**values)
    tally.covered_ms = 1000
    tally.power_max_mw = None
    if dice.random() < 0.3:
        tally.nvlink_rx_kib = None
    return tally


def roll_all_up(recorder: Recorder, seconds: float) -> int:
    n_parts = 0
    while recorder.roll_up(later(seconds)):
        n_parts += 1
    return n_parts


def test_samples_are_written_once(store: Store) -> None:
    recorder = store.recorder()
    tally = Tally(covered_ms=1000, utilization_pct_ms=99_000, memory_mib_ms=2**40)
    recorder.usage.sample(GPUS[1].id, NOW_S, tally)
    recorder.commit()
    recorder.commit()
    (row,) = rows(store, UsageRow)
    assert (row["span_s"], row["start_s"], row["memory_mib_ms"]) == (1, NOW_S, 2**40)
    assert (row["utilization_pct_ms"], row["energy_mj"]) == (99_000, None)


def test_totals_of_an_attempt_replace_earlier_ones(store: Store) -> None:
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt, *GPUS)
    for commits, energy_mj in ((False, 1), (True, 2), (False, 3), (True, 2**40)):
        for gpu in GPUS:
            recorder.usage.total(attempt.id, gpu.id, Tally(covered_ms=9, energy_mj=energy_mj))
        if commits:
            recorder.commit()
    found = rows(store, AttemptUsageRow)
    assert [(row["covered_ms"], row["energy_mj"]) for row in found] == [(9, 2**40)] * 2


def test_an_idle_time_grows(store: Store) -> None:
    recorder = store.recorder()
    span = IdleSpan(
        device_id=GPUS[0].id, cause=IdleCause.PAUSED, began_at=NOW, ended_at=later(1.25)
    )
    recorder.usage.idle(span)
    recorder.usage.idle(replace(span, ended_at=later(2), is_known=True))
    recorder.commit()
    recorder.usage.idle(replace(span, ended_at=later(60.5), is_known=True))
    recorder.usage.idle(replace(span, device_id=GPUS[1].id))
    recorder.commit()
    found = rows(store, IdleRow)
    lengths = [(row["ended_at"] - row["began_at"]) / timedelta(seconds=1) for row in found]
    assert lengths == [60.5, 1.25]
    assert [row["cause"] for row in found] == [IdleCause.PAUSED] * 2


def sums(found: list[dict[str, int]]) -> dict[int, Mapping[str, int | None]]:
    """All figures of each device together."""
    totals: dict[int, Tally] = {}
    for row in found:
        tally = Tally(**{name: row[name] for name in FIGURES})
        totals.setdefault(row["device_id"], Tally()).add(tally)
    return {device: {n: getattr(each, n) for n in FIGURES} for device, each in totals.items()}


def write_samples(recorder: Recorder, begin_s: int, end_s: int, step_s: int = 1) -> None:
    dice = random.Random(begin_s)
    for start_s in range(begin_s, end_s, step_s):
        for gpu in GPUS:
            recorder.usage.sample(gpu.id, start_s, a_tally(dice))
    recorder.commit()


def test_sums_and_maxima_are_the_same_after_each_roll_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roll_up, "MOST_ROWS", 50)
    recorder = store.recorder()
    # Two minutes with a gap, the beginning and the end within spans of ten seconds.
    write_samples(recorder, NOW_S - 117, NOW_S - 33)
    write_samples(recorder, NOW_S - 21, NOW_S - 4)
    before = rows(store, UsageRow)
    assert not recorder.roll_up(later(3_000))

    assert roll_all_up(recorder, 3_600) > 1
    tens = rows(store, UsageRow)
    assert {row["span_s"] for row in tens} == {10}
    assert all(row["start_s"] % 10 == 0 for row in tens)
    assert sums(tens) == sums(before)

    assert roll_all_up(recorder, 86_400 + 60) >= 1
    minutes = rows(store, UsageRow)
    assert [(row["start_s"] - NOW_S, row["span_s"]) for row in minutes[::2]] == [
        (-120, 60),
        (-60, 60),
    ]
    assert sums(minutes) == sums(before)
    first = minutes[0]
    of_first = [
        row
        for row in before
        if row["device_id"] == first["device_id"] and row["start_s"] < NOW_S - 60
    ]
    for name in FIGURES:
        values = [row[name] for row in of_first if row[name] is not None]
        expected = (max if name in MAXIMA else sum)(values) if values else None
        assert first[name] == expected, name


def test_new_samples_stay_as_they_are(store: Store) -> None:
    recorder = store.recorder()
    write_samples(recorder, NOW_S - 25, NOW_S)
    roll_all_up(recorder, 3_600 - 15)
    found = rows(store, UsageRow)
    spans = {(row["start_s"] - NOW_S, row["span_s"]) for row in found}
    assert spans == {(-30, 10), *((second, 1) for second in range(-20, 0))}


@pytest.mark.slow
def test_what_a_dispatcher_has_left_is_rolled_up_by_a_later_one(store: Store) -> None:
    first = store.recorder()
    write_samples(first, NOW_S, NOW_S + 20)
    first.end(later(20))
    first.commit()
    second = store.recorder(at=later(4_000))
    assert roll_all_up(second, 4_000) == 1
    assert {row["span_s"] for row in rows(store, UsageRow)} == {10}


#: An SQLite study has one dispatcher at a time.
of_servers = pytest.mark.parametrize("url", SERVERS, indirect=True)


@of_servers
def test_what_another_dispatcher_still_writes_is_left_alone(store: Store) -> None:
    other = store.recorder(ELSEWHERE)
    write_samples(other, NOW_S, NOW_S + 20)
    own = store.recorder()
    assert roll_all_up(own, 4_000) == 0
    assert len(rows(store, UsageRow)) == 40


@of_servers
def test_two_dispatchers_roll_the_same_up_once(store: Store) -> None:
    gone = store.recorder(with_process(ELSEWHERE, host="gone"))
    write_samples(gone, NOW_S, NOW_S + 600)
    before = sums(rows(store, UsageRow))
    gone.end(later(600))
    gone.commit()
    recorders = [store.recorder(ELSEWHERE), store.recorder(DEAD)]
    together = threading.Barrier(2)

    def roll(recorder: Recorder) -> int:
        together.wait()
        return roll_all_up(recorder, 8_000)

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(roll, recorders)) >= 1
    assert sums(rows(store, UsageRow)) == before


@of_servers
def test_what_another_has_rolled_up_between_two_looks_is_left_to_it(store: Store) -> None:
    gone = store.recorder(with_process(ELSEWHERE, host="gone"))
    write_samples(gone, NOW_S, NOW_S + 60)
    gone.end(later(600))
    gone.commit()
    mine, table = store.recorder(ELSEWHERE), table_of(UsageRow)
    is_first = True

    def another_is_quicker(*arguments: object) -> None:
        nonlocal is_first
        if is_first and "EXISTS" in str(arguments[2]):
            is_first = False
            with store.database.engine.begin() as connection:
                connection.execute(sa.delete(table))

    engine = store.database.engine
    sa.event.listen(engine, "after_cursor_execute", another_is_quicker)
    try:
        assert not mine.roll_up(later(8_000))
    finally:
        sa.event.remove(engine, "after_cursor_execute", another_is_quicker)
    assert not is_first
