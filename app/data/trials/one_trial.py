"""All that the database knows of one trial, and the end of its log."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from tuner.app.data.trials.run_alone import read_command_alone
from tuner.checkpoints.paths import FOLDER_NAME
from tuner.checkpoints.trial_folders import TrialKey, locate
from tuner.queries.checkpoints import ShownCheckpoint, read_checkpoints
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import Objective
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.search.study_identity import IDENTITY_ATTR, key_of
from tuner.store.optuna_tables.statements import STUDY_ATTRS, TRIALS
from tuner.store.schema.models import AttemptRow, MetricRow
from tuner.store.schema.statements import in_utc
from tuner.terminal.why import explain

_TAIL_BYTES = 16_384
_TAIL_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTrial:
    """A trial, its curves and what `tuner why` says of it."""

    trial: StoredTrial
    #: By name; the first one is what was reported as the value.
    curves: Mapping[str, Mapping[int, float]]
    why: str
    #: A line for a shell that runs its program alone; None where that is not known.
    alone: str | None
    #: The newest first.
    checkpoints: Sequence[ShownCheckpoint]
    #: Tells whether the trial's folder still holds its files; None where no trial has such a key.
    key: TrialKey | None


def read_trial(
    connection: sa.Connection,
    study: StoredStudy,
    objectives: Sequence[Objective],
    number: int,
    now: datetime,
) -> OneTrial | None:
    """None where there is no such trial."""
    choice = Choice(numbers=frozenset({number}))
    found = read_trials(connection, study.id, objectives, choice, now=now, with_reports=True)
    if not found:
        return None
    name = objectives[0].name if len(objectives) == 1 else "reported value"
    curves = {name: found[0].reports} if found[0].reports else {}
    metrics = _metrics(connection, study.id, number)
    why = explain(connection, study, number, now)
    trial = found[0]
    last = trial.attempts[-1] if trial.attempts else None
    return OneTrial(
        trial=trial,
        curves={**curves, **metrics},
        why=why,
        alone=read_command_alone(connection, number, trial.params, last),
        checkpoints=_checkpoints(connection, study.id, number),
        key=_key(connection, study.id, trial),
    )


def _key(connection: sa.Connection, study_id: int, trial: StoredTrial) -> TrialKey | None:
    query = sa.select(STUDY_ATTRS.c.value_json).where(
        STUDY_ATTRS.c.study_id == study_id, STUDY_ATTRS.c.key == IDENTITY_ATTR
    )
    stored = connection.execute(query).scalar()
    study = None if stored is None else key_of(json.loads(stored))
    begun_at = trial.attempts[0].leased_at if trial.attempts else None
    if study is None or begun_at is None:
        return None
    return TrialKey(
        study=study, number=trial.number, begun_at=in_utc(begun_at), params=trial.params
    )


def _checkpoints(
    connection: sa.Connection, study_id: int, number: int
) -> Sequence[ShownCheckpoint]:
    query = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == number
    )
    trial_id = connection.execute(query).scalar_one()
    return read_checkpoints(connection, [trial_id]).get(trial_id, ())


def _is_ours(path: Path) -> bool:
    """A database that somebody else has written could name any file of this machine."""
    return path.suffix == ".log" and FOLDER_NAME in path.resolve().parts


def _metrics(connection: sa.Connection, study_id: int, number: int) -> dict[str, dict[int, float]]:
    """A later attempt replaces what an earlier one reported at the same step."""
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(MetricRow.name, MetricRow.step, MetricRow.value)
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
        .where(
            TRIALS.c.study_id == study_id,
            TRIALS.c.number == number,
            MetricRow.value.is_not(None),
        )
        .order_by(AttemptRow.number, MetricRow.step)
    )
    curves: dict[str, dict[int, float]] = {}
    for row in connection.execute(query):
        curves.setdefault(row.name, {})[row.step] = row.value
    return {name: dict(sorted(curve.items())) for name, curve in sorted(curves.items())}


def log_tail(attempt: StoredAttempt, key: TrialKey | None = None) -> str:
    """The last lines of an attempt's log, or why they can't be shown.

    Args:
        attempt: The attempt.
        key: Identifies its trial: another one may have its folder by now.
    """
    path = Path(attempt.log_path)
    if attempt.host != socket.gethostname():
        return f"The log is on {attempt.host}: {path}"
    if _is_ours(path) and key is not None:
        folder = locate(path.parent, key)
        if folder is None and path.parent.is_dir():
            return f"The log is gone: {path.parent} holds the files of another trial."
        path = (folder or path.parent) / path.name
    if not _is_ours(path):
        return f"{path} is not a log of the tuner."
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"The log can't be read: {error.strerror} ({path})"
    if size > _TAIL_BYTES:
        lines = lines[1:]
    return "\n".join(lines[-_TAIL_LINES:]) or "Nothing was printed so far."
