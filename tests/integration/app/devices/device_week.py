"""A study that has kept the GPUs of a machine at work for days, as it stands in a database."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from optuna.trial import create_trial

from tests.integration.stored_studies import seeded
from tuner.devices.device import DeviceKind
from tuner.devices.idle_causes import IdleCause
from tuner.domain.attempt import AttemptState, Outcome
from tuner.host.process_identity import own_process
from tuner.store.schema.models import (
    AttemptRow,
    AttemptUsageRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    IdleRow,
    LeaseRow,
    TunerBase,
    UsageRow,
    table_of,
)
from tuner.store.schema.statements import in_utc

_OUTCOMES = (*[Outcome.COMPLETED] * 5, *[Outcome.PRUNED] * 4, Outcome.FAILED)
_CAUSES = (IdleCause.NO_SUGGESTION, IdleCause.GATHERING, IdleCause.PAUSED)
Row = dict[str, Any]


def add_week(
    url: str,
    now: datetime,
    *,
    name: str = "week",
    n_devices: int = 8,
    days: float = 7.0,
    trial_s: float = 600.0,
) -> None:
    """Trials of about a length, one after another on each GPU, with a short pause between them.

    Args:
        url: Of a database with tables.
        now: When the newest sample is of; the study still runs.
        name: Of the study.
        n_devices: GPUs.
        days: How long it has run.
        trial_s: Of a trial, about.
    """
    n_of_a_device = int(days * 86_400 / trial_s)
    seeded.add_study(url, name, [create_trial(value=0.5) for _ in range(n_of_a_device * n_devices)])
    with seeded.writing(url) as connection:
        dispatcher_id, devices = _add_machine(connection, name, n_devices, now, days)
        ids = list(
            connection.execute(
                sa.text("SELECT trial_id FROM trials WHERE study_id = :id ORDER BY number"),
                {"id": seeded.study_id(connection, name)},
            ).scalars()
        )
        # The newest trial has the highest number.
        _add_trials(connection, dispatcher_id, devices, ids[::-1], now, trial_s)
        for span_s, oldest_s, newest_s in (
            (60, days * 86_400, 86_400.0),
            (10, min(days * 86_400, 86_400.0), 3_600.0),
            (1, min(days * 86_400, 3_600.0), 0.0),
        ):
            rows = list(_samples(dispatcher_id, devices, now, span_s, oldest_s, newest_s))
            if rows:
                connection.execute(sa.insert(table_of(UsageRow)), rows)


def _add_machine(
    connection: sa.Connection, name: str, n_devices: int, now: datetime, days: float
) -> tuple[int, list[int]]:
    host_id = connection.execute(
        sa.select(HostRow.id).where(HostRow.name == seeded.HERE)
    ).scalar() or _insert(connection, HostRow, name=seeded.HERE, n_cores=64, memory_bytes=2**40)
    dispatcher_id = _insert(
        connection,
        DispatcherRow,
        study_id=seeded.study_id(connection, name),
        host_id=host_id,
        pid=os.getpid(),
        process_created_at_s=0.0,
        started_at=in_utc(now - timedelta(days=days)),
        beat_at=in_utc(now),
        seed=0,
        study_file="",
        folder="",
        versions=own_process().facts(),
    )
    devices = [
        _insert(
            connection,
            DeviceRow,
            host_id=host_id,
            device=f"GPU-{name}-{number}",
            kind=DeviceKind.GPU,
            number=number,
            name="H200",
            memory_bytes=2**37,
        )
        for number in range(n_devices)
    ]
    return dispatcher_id, devices


def _add_trials(
    connection: sa.Connection,
    dispatcher_id: int,
    devices: list[int],
    trial_ids: list[int],
    now: datetime,
    trial_s: float,
) -> None:
    dice = random.Random(0)
    first_id = 1 + (connection.execute(sa.select(sa.func.max(AttemptRow.id))).scalar() or 0)
    attempts, leases, uses, idle = [], [], [], []
    for place, trial_id in enumerate(trial_ids):
        device_id = devices[place % len(devices)]
        back_s = (place // len(devices)) * trial_s
        ended_at = in_utc(now - timedelta(seconds=back_s + 0.02 * trial_s))
        leased_at = ended_at - timedelta(seconds=0.97 * trial_s)
        of_us = {"device_id": device_id}
        attempts.append(
            {
                "id": first_id + place,
                "dispatcher_id": dispatcher_id,
                "trial_id": trial_id,
                "number": 1,
                "state": AttemptState.FINISHED,
                "outcome": dice.choice(_OUTCOMES),
                "detail": "",
                "params": {},
                "seed": 0,
                "log_path": "",
                "leased_at": leased_at,
                "started_at": leased_at + timedelta(seconds=0.01 * trial_s),
                "ended_at": ended_at - timedelta(seconds=0.005 * trial_s),
                "finished_at": ended_at,
            }
        )
        of_attempt = {"attempt_id": first_id + place, **of_us}
        leases.append({**of_attempt, "leased_at": leased_at, "released_at": ended_at})
        uses.append({**of_attempt, **_figures(dice, int(970 * trial_s))})
        idle.append(
            {
                **of_us,
                "dispatcher_id": dispatcher_id,
                "began_at": ended_at,
                "ended_at": ended_at + timedelta(seconds=0.02 * trial_s),
                "cause": dice.choice(_CAUSES),
            }
        )
    for table, rows in (
        (AttemptRow, attempts),
        (LeaseRow, leases),
        (AttemptUsageRow, uses),
        (IdleRow, idle),
    ):
        connection.execute(sa.insert(table_of(table)), rows)


def _samples(
    dispatcher_id: int,
    devices: list[int],
    now: datetime,
    span_s: int,
    oldest_s: float,
    newest_s: float,
) -> Iterator[Row]:
    dice = random.Random(span_s)
    now_s = int(now.timestamp())
    begin_s = int(now_s - oldest_s) // span_s * span_s
    for start_s in range(begin_s, int(now_s - newest_s) // span_s * span_s, span_s):
        for device_id in devices:
            yield {
                "dispatcher_id": dispatcher_id,
                "span_s": span_s,
                "start_s": start_s,
                "device_id": device_id,
                **_figures(dice, 1000 * span_s),
                "power_max_mw": 700_000,
                "temperature_c_ms": 60_000 * span_s,
                "temperature_max_c": 70,
                "sm_clock_mhz_ms": 1_980_000 * span_s,
                "memory_clock_mhz_ms": 2_619_000 * span_s,
                "pcie_rx_kib": 1_000 * span_s,
                "pcie_tx_kib": 2_000 * span_s,
            }


def _figures(dice: random.Random, covered_ms: int) -> Row:
    percent, mib = dice.randrange(60, 100), dice.randrange(40_000, 80_000)
    return {
        "covered_ms": covered_ms,
        "utilization_pct_ms": percent * covered_ms,
        "utilization_max_pct": 100,
        "memory_mib_ms": mib * covered_ms,
        "memory_max_mib": mib,
        "energy_mj": 600 * covered_ms,
    }


def _insert(connection: sa.Connection, row: type[TunerBase], **values: object) -> int:
    key = connection.execute(sa.insert(table_of(row)), values).inserted_primary_key
    assert key is not None
    return int(key[0])
