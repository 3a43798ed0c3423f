"""What devices did, read from every database as columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from tests.integration.app.devices.device_week import add_week
from tests.integration.stored_studies import seeded
from tuner.app.data.devices.history import CAUSES, DeviceHistory, History
from tuner.app.data.devices.samples import Window
from tuner.app.data.page_data import Look
from tuner.devices.idle_causes import IdleCause
from tuner.store.schema.models import DeviceRow, DispatcherRow, IdleRow, UsageRow, table_of

NOW = seeded.NOW
NOW_S = int(NOW.timestamp())


@contextmanager
def looking(url: str) -> Iterator[Look]:
    look = Look(url)
    yield look
    look.close()


def read(
    look: Look, begin_s: float, end_s: float, width_s: int, *, of_all: bool = False
) -> History:
    window = Window(start_s=NOW_S + int(begin_s), end_s=NOW_S + int(end_s), width_s=width_s)
    study = None if of_all else next(iter(look.studies().values()))
    return look.device_history.read(study, window, NOW + timedelta(seconds=end_s))


def insert(url: str, table: type[UsageRow | IdleRow], *rows: dict[str, Any]) -> None:
    """Of the first dispatcher and device, where they say nothing else."""
    with seeded.writing(url) as connection:
        of_us = {
            "dispatcher_id": connection.execute(sa.select(sa.func.min(DispatcherRow.id))).scalar(),
            "device_id": connection.execute(sa.select(sa.func.min(DeviceRow.id))).scalar(),
        }
        names = dict.fromkeys(name for row in rows for name in row)
        whole = [{**of_us, **dict.fromkeys(names), **row} for row in rows]
        connection.execute(sa.insert(table_of(table)), whole)


def a_sample(start_s: int, **figures: int) -> dict[str, Any]:
    return {"span_s": 1, "start_s": NOW_S + start_s, "covered_ms": 1000, **figures}


@pytest.fixture
def study_url(url: str) -> str:
    """Of a study with one dispatcher and one device, which no sample tells of yet."""
    seeded.add_study(url, "first", seeded.first_trials())
    seeded.add_attempt(url, seeded.add_dispatcher(url, "first", is_alive=True), 0)
    with seeded.writing(url) as connection:
        for table in (UsageRow, IdleRow):
            connection.execute(sa.delete(table_of(table)))
    return url


def test_samples_are_added_up_by_the_database(study_url: str) -> None:
    insert(
        study_url,
        UsageRow,
        a_sample(0, utilization_pct_ms=100_000, memory_mib_ms=2_000, memory_max_mib=2),
        a_sample(1, utilization_pct_ms=50_000, memory_mib_ms=4_000, memory_max_mib=4),
        a_sample(2, energy_mj=3_600_000),
    )
    with looking(study_url) as look:
        bins = read(look, 0, 4, 2).bins
    order = np.argsort(bins.starts_s)
    assert (bins.starts_s[order] - NOW_S).tolist() == [0, 2]
    assert bins.covered_s[order].tolist() == [2, 1]
    assert bins.utilization_pct[order].tolist()[0] == 75
    assert bins.memory_bytes[order].tolist()[0] == 3 * 2**20
    assert bins.memory_max_bytes[order].tolist()[0] == 4 * 2**20
    assert bins.energy_kwh[order].tolist()[1] == pytest.approx(0.001)
    assert np.isnan(bins.utilization_pct[order][1])


def test_what_two_dispatchers_saw_of_a_device_counts_once(study_url: str) -> None:
    second = seeded.add_dispatcher(study_url, "first")
    row = a_sample(0, energy_mj=3_600_000, utilization_pct_ms=50_000)
    insert(study_url, UsageRow, row)
    insert(study_url, UsageRow, {**row, "dispatcher_id": second})
    with looking(study_url) as look:
        bins = read(look, 0, 1, 1).bins
    found = (bins.covered_s, bins.energy_kwh, bins.utilization_pct)
    assert [each.tolist() for each in found] == [[1.0], [0.001], [50.0]]


def test_the_newest_sample_is_the_present(study_url: str) -> None:
    insert(
        study_url,
        UsageRow,
        a_sample(10, utilization_pct_ms=1_000, pcie_rx_kib=1, pcie_tx_kib=2, energy_mj=500_000),
        a_sample(9, utilization_pct_ms=99_000),
    )
    with looking(study_url) as look:
        (present,) = read(look, 0, 15, 1).present.values()
        assert read(look, 0, 60, 1).present == {}
    assert (present.at_s - NOW_S, present.utilization_pct, present.power_w) == (10, 1, 500)
    assert (present.pcie_bytes_s, present.nvlink_bytes_s) == (3 * 1024, None)


def an_idle_time(began_s: float, ended_s: float, cause: IdleCause) -> dict[str, Any]:
    began, ended = (
        (NOW + timedelta(seconds=each)).replace(tzinfo=None) for each in (began_s, ended_s)
    )
    return {
        "began_at": began,
        "ended_at": ended,
        "cause": cause,
    }


def test_idle_times_and_their_causes(study_url: str) -> None:
    insert(
        study_url,
        IdleRow,
        an_idle_time(-9_000, -8_000, IdleCause.LOST),
        an_idle_time(-5_000, -100.5, IdleCause.PAUSED),
        an_idle_time(-50, -20, IdleCause.TAKEN),
    )
    with looking(study_url) as look:
        idle = read(look, -7_000, 0, 60).idle
    assert [CAUSES[each] for each in idle.causes.tolist()] == [IdleCause.PAUSED, IdleCause.TAKEN]
    assert (idle.began_s - NOW_S).tolist() == [-5_000, -50]
    assert (idle.ended_s - NOW_S).tolist() == [-100.5, -20]


def test_a_second_look_sees_what_is_new_and_reads_the_old_once(study_url: str) -> None:
    insert(study_url, UsageRow, *(a_sample(at, energy_mj=1_000) for at in range(-3_000, 0)))
    insert(study_url, IdleRow, an_idle_time(-60, -10, IdleCause.PAUSED))
    with looking(study_url) as look:
        before = read(look, -3_000, 0, 20)
        with seeded.writing(study_url) as connection:
            # It lasts; and what is settled would not be seen to change.
            longer = an_idle_time(-60, 1, IdleCause.PAUSED)
            connection.execute(sa.update(table_of(IdleRow)).values(ended_at=longer["ended_at"]))
            settled = UsageRow.start_s < NOW_S - 2_000
            connection.execute(sa.delete(table_of(UsageRow)).where(settled))
        insert(study_url, UsageRow, *(a_sample(at, energy_mj=1_000) for at in range(20)))
        after = read(look, -3_000, 20, 20)
    assert before.bins.energy_kwh.sum() * 3.6e9 == pytest.approx(3_000_000)
    assert after.bins.energy_kwh.sum() * 3.6e9 == pytest.approx(3_020_000)
    assert (after.idle.ended_s - NOW_S).tolist() == [1]


def test_another_study_is_another_history(study_url: str) -> None:
    insert(study_url, UsageRow, a_sample(0, energy_mj=1))
    seeded.add_study(study_url, "second", [])
    with looking(study_url) as look:
        window = Window(start_s=NOW_S, end_s=NOW_S + 1, width_s=1)
        studies = look.studies()
        first, second, both = (
            look.device_history.read(study, window, NOW)
            for study in (studies["first"], studies["second"], None)
        )
    assert [len(each.bins.device_ids) for each in (first, second, both)] == [1, 0, 1]


def test_a_week_of_gpus(url: str) -> None:
    add_week(url, NOW, n_devices=2, days=1.5, trial_s=3_600)
    with looking(url) as look:
        history = read(look, -1.5 * 86_400, 0, 600)
    covered_s = history.bins.covered_s.sum()
    assert covered_s == pytest.approx(2 * 1.5 * 86_400, rel=0.01)
    assert history.bins.energy_kwh.sum() == pytest.approx(0.6 * covered_s / 3_600, rel=0.01)
    with seeded.looking(url) as connection:
        dispatchers = connection.execute(sa.select(sa.func.count(DispatcherRow.id))).scalar()
    assert dispatchers == 1
    assert isinstance(look.device_history, DeviceHistory)
