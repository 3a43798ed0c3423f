"""Columns as a database would give them, from short lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import StudyDirection

from tuner.app.data.devices.leases import HostDevice, Leases, lease_columns
from tuner.app.data.devices.timeline import Bar, bars, spans_of
from tuner.app.data.outcome_words import CODES
from tuner.app.data.trials.columns import TrialColumns
from tuner.domain.attempt import AttemptState, Outcome
from tuner.queries.studies import Objective
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.usage import NO_USE

NAN = float("nan")
LOSS = Objective(name="loss", direction=StudyDirection.MINIMIZE)
ACCURACY = Objective(name="accuracy", direction=StudyDirection.MAXIMIZE)


def trials(
    values: Sequence[Sequence[float] | float],
    *,
    words: Sequence[str] = (),
    started_at_s: Sequence[float] = (),
    ended_at_s: Sequence[float] = (),
    infeasible: Sequence[int] = (),
) -> TrialColumns:
    """Each began when the last one ended, after ten seconds."""
    n = len(values)
    words = words or ["completed"] * n
    ends = ended_at_s or [10.0 * (i + 1) for i in range(n)]
    is_open = np.isin(words, ["running", "waiting"])
    rows = np.array(values, dtype=float).reshape(n, -1) if n else np.empty((0, 1))
    return TrialColumns(
        ids=np.arange(n) + 100,
        numbers=np.arange(n),
        words=np.array([CODES[word] for word in words], dtype=np.int64),
        started_at_s=np.array(started_at_s or [10.0 * i for i in range(n)], dtype=float),
        ended_at_s=np.where(is_open, np.nan, np.array(ends, dtype=float)),
        left_at_s=np.where(is_open, np.nan, np.array(ends, dtype=float)),
        attempts_s=np.full(n, np.nan),
        open_since_s=np.full(n, np.nan),
        abandoned_at_s=np.full(n, np.nan),
        last_steps=np.full(n, np.nan),
        last_values=np.full(rows.shape, np.nan),
        values=rows,
        is_infeasible=np.isin(np.arange(n), infeasible),
    )


def device(number: int, host: str = "a") -> HostDevice:
    at = number if host == "a" else 100 + number
    return HostDevice(
        id=at, host=host, label=f"GPU {number}", name="H200", kind="gpu", number=number
    )


def lease(
    attempt: int,
    device_id: int,
    start_s: float,
    end_s: float,
    *,
    word: str = "completed",
    slot: int = 0,
    share: float = 1.0,
    dispatcher: int = 1,
    hello_s: float | None = None,
    over_s: float | None = None,
) -> dict[str, object]:
    return {
        "ids": attempt * 100 + device_id,
        "attempt_ids": attempt,
        "trial_ids": attempt,
        "trial_numbers": attempt,
        "attempt_numbers": 1,
        "device_ids": device_id,
        "slots": slot,
        "shares": share,
        "words": CODES[word],
        "started_at_s": start_s,
        "ended_at_s": end_s,
        "hello_at_s": start_s if hello_s is None else hello_s,
        "over_at_s": end_s if over_s is None else over_s,
        "dispatcher_ids": dispatcher,
    }


def leases(
    *rows: dict[str, object],
    devices: Sequence[HostDevice] = (),
    until_s: float = 100.0,
    is_alive: bool = True,
) -> Leases:
    known = devices or [device(0), device(1)]
    return Leases(
        columns=lease_columns(rows),
        devices={each.id: each for each in known},
        known_until_s={1: until_s},
        living=frozenset({1} if is_alive else ()),
    )


def stored_attempt(*, seed: int = 0) -> StoredAttempt:
    return StoredAttempt(
        number=1,
        state=AttemptState.FINISHED,
        outcome=Outcome.COMPLETED,
        cause=None,
        detail="",
        dispatcher_id=1,
        host="a",
        devices=("GPU 0",),
        pid=None,
        seed=seed,
        peak_memory_bytes=None,
        use=NO_USE,
        log_path="",
        leased_at=None,
        started_at=None,
        ended_at=None,
        finished_at=None,
    )


def bars_of(leases: Leases, start_s: float = -math.inf, end_s: float = math.inf) -> list[Bar]:
    """A bar for each lease, in the order of their beginnings."""
    return bars(spans_of(leases, start_s, end_s), leases.devices)
