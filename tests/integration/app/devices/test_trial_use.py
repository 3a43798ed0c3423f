"""What the devices of one trial did while it held them, read from every database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from tests.integration.stored_studies import seeded
from tuner.app.data.devices.trial_use import TrialUse
from tuner.app.data.page_data import Look
from tuner.domain.attempt import Outcome
from tuner.store.schema.models import AttemptRow, DeviceRow, LeaseRow, UsageRow, table_of

NOW_S = int(seeded.NOW.timestamp())


def use_of(url: str, trial: int, *, seen_s: float = 700.0) -> TrialUse | None:
    """As seen so many seconds after NOW."""
    look = Look(url)
    try:
        study = look.studies()["first"]
        return look.trial_use(study, trial, seeded.NOW + timedelta(seconds=seen_s))
    finally:
        look.close()


def a_sample(start_s: int, utilization_pct: int | None, mib: int | None) -> dict[str, Any]:
    return {
        "span_s": 1,
        "start_s": NOW_S + start_s,
        "covered_ms": 1000,
        "utilization_pct_ms": None if utilization_pct is None else 1000 * utilization_pct,
        "memory_mib_ms": None if mib is None else 1000 * mib,
        "memory_max_mib": mib,
    }


def insert(url: str, dispatcher_id: int, device: int, *samples: dict[str, Any]) -> None:
    """In the place of those that there were at that time."""
    with seeded.writing(url) as connection:
        query = sa.select(DeviceRow.id).where(DeviceRow.device == f"GPU-{device}")
        of_us = {"dispatcher_id": dispatcher_id, "device_id": connection.execute(query).scalar()}
        connection.execute(sa.insert(table_of(UsageRow)), [{**of_us, **each} for each in samples])


def hold(url: str, number: int, start_s: float, end_s: float) -> None:
    """Moves an attempt, which lasted from a minute to three seconds after that."""
    with seeded.writing(url) as connection:
        ids = sa.select(AttemptRow.id).where(AttemptRow.number == number)
        edges = [seeded.NOW + timedelta(seconds=at) for at in (start_s, end_s)]
        leased_at, released_at = (each.replace(tzinfo=None) for each in edges)
        connection.execute(
            sa.update(LeaseRow)
            .where(LeaseRow.attempt_id.in_(ids))
            .values(leased_at=leased_at, released_at=released_at)
        )


@pytest.fixture
def study_url(url: str) -> str:
    seeded.add_study(url, "first", seeded.first_trials())
    return url


def without_samples(url: str) -> None:
    with seeded.writing(url) as connection:
        connection.execute(sa.delete(table_of(UsageRow)))


def test_attempts_follow_each_other_and_what_lies_between_them_is_left_out(study_url: str) -> None:
    of = seeded.add_dispatcher(study_url, "first", is_ended=True)
    seeded.add_attempt(study_url, of, 0, outcome=Outcome.PAUSED)
    seeded.add_attempt(study_url, of, 0, number=2, device=1)
    without_samples(study_url)
    hold(study_url, 1, 100, 104)
    hold(study_url, 2, 500, 503)
    insert(study_url, of, 0, *(a_sample(at, at - 60, 1024) for at in range(90, 110)))
    insert(study_url, of, 1, *(a_sample(at, 80, None) for at in range(498, 505)))
    use = use_of(study_url, 0)
    assert use is not None
    assert (use.begins_s, use.length_s, use.width_s) == ({1: 0.0, 2: 4.0}, 7.0, 1)
    first, second = use.devices
    assert (first.device.label, second.device.label) == ("GPU 0", "GPU 1")
    # A row that is empty ends each attempt, so that no line joins two.
    there = np.isfinite(first.utilization_pct)
    assert first.elapsed_s[there].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert first.utilization_pct[there].tolist() == [40, 41, 42, 43]
    assert set(first.memory_bytes[there].tolist()) == {2**30}
    assert np.isnan(first.utilization_pct[-1])
    there = np.isfinite(second.utilization_pct)
    assert second.elapsed_s[there].tolist() == [4.5, 5.5, 6.5]
    assert (second.at_s[there] - NOW_S).tolist() == [500.5, 501.5, 502.5]
    assert np.isnan(second.memory_bytes).all()


def test_a_trial_that_runs_is_known_until_now(study_url: str) -> None:
    of = seeded.add_dispatcher(study_url, "first", is_alive=True)
    seeded.add_attempt(study_url, of, 4, outcome=None)
    insert(study_url, of, 0, *(a_sample(at, 50, 1024) for at in range(58, 100)))
    use = use_of(study_url, 4, seen_s=80.5)
    assert use is not None
    assert (use.length_s, use.is_shared) == (20.5, True)
    (device,) = use.devices
    there = np.isfinite(device.utilization_pct)
    assert device.elapsed_s[there].tolist() == [*(0.5 + at for at in range(20)), 20.5]


def test_seconds_that_were_rolled_up_are_shown_as_wide_as_they_are(study_url: str) -> None:
    of = seeded.add_dispatcher(study_url, "first", is_ended=True)
    seeded.add_attempt(study_url, of, 0)
    without_samples(study_url)
    hold(study_url, 1, 60, 180)
    minutes = [{**a_sample(at, 10 + at, 1024), "span_s": 60} for at in (0, 60, 120, 180)]
    insert(study_url, of, 0, *minutes)
    use = use_of(study_url, 0, seen_s=100_000)
    assert use is not None
    assert use.width_s == 60
    (device,) = use.devices
    there = np.isfinite(device.utilization_pct)
    assert device.elapsed_s[there].tolist() == [30, 90]


def test_a_trial_of_which_nobody_has_looked_at_the_devices(study_url: str) -> None:
    seeded.add_attempt(study_url, seeded.add_dispatcher(study_url, "first", is_ended=True), 0)
    without_samples(study_url)
    use = use_of(study_url, 0)
    assert use is not None
    assert use.devices == ()
    assert use_of(study_url, 1) is None


def test_what_is_long_over_is_read_once(study_url: str) -> None:
    of = seeded.add_dispatcher(study_url, "first", is_ended=True)
    seeded.add_attempt(study_url, of, 0)
    look = Look(study_url)
    study = look.studies()["first"]
    new, old = (seeded.NOW + timedelta(seconds=at) for at in (100, 1_000))
    assert look.trial_use(study, 0, new) is not look.trial_use(study, 0, new)
    assert look.trial_use(study, 0, old) is look.trial_use(study, 0, old)
    look.close()


def test_a_database_of_optuna_alone_has_no_devices(url: str) -> None:
    seeded.add_study(url, "first", seeded.first_trials(), space=None)
    assert use_of(url, 0) is None
