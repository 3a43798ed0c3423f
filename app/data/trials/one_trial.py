"""All data about one trial in the database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.app.data.metrics.attempt_rows import MetricReport, join_attempts
from tuner.app.data.trials.run_alone import read_command_alone
from tuner.checkpoints.trial_folders import TrialKey
from tuner.queries.checkpoints import ShownCheckpoint, read_checkpoints
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import Objective
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.queries.uploads import read_uploads
from tuner.search.study_identity import key_of
from tuner.store.optuna_tables.statements import IDENTITY_ATTR, STUDY_ATTRS, TRIALS
from tuner.store.records.upload_rows import StoredUpload
from tuner.store.schema.models import AttemptRow, MetricRow, UploadKind
from tuner.store.schema.statements import in_utc
from tuner.terminal.why import explain, read_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTrial:
    """A trial, its curves and its explanation by `tuner why`."""

    trial: StoredTrial
    #: By name; the first is the reported objective.
    curves: Mapping[str, Mapping[int, float]]
    why: str
    #: Why it is in its state, in a sentence or two; empty if its result shows this.
    reason: str
    #: Shell lines that run its program alone; None if unknown.
    alone: str | None
    #: The newest first.
    checkpoints: Sequence[ShownCheckpoint]
    #: Identifies the files in the trial's folder; None if trials have no such key.
    key: TrialKey | None
    #: Logs of ended attempts in an object store.
    logs: Sequence[StoredUpload] = ()


def read_trial(
    connection: sa.Connection,
    study: StoredStudy,
    objectives: Sequence[Objective],
    number: int,
    now: datetime,
) -> OneTrial | None:
    """None if there is no such trial."""
    choice = Choice(numbers=frozenset({number}))
    found = read_trials(connection, study.id, objectives, choice, now=now, with_reports=True)
    if not found:
        return None
    name = objectives[0].name if len(objectives) == 1 else "reported value"
    curves = {name: found[0].reports} if found[0].reports else {}
    metrics = _metrics(connection, study.id, number)
    trial = found[0]
    trial_id = _trial_id(connection, study.id, number)
    last = trial.attempts[-1] if trial.attempts else None
    return OneTrial(
        trial=trial,
        curves={**curves, **metrics},
        why=explain(connection, study, number, now),
        reason=read_reason(connection, study, number, now),
        alone=read_command_alone(connection, number, trial.params, last),
        checkpoints=read_checkpoints(connection, [trial_id]).get(trial_id, ()),
        logs=read_uploads(connection, trial_id, UploadKind.LOG),
        key=read_key(connection, study.id, trial),
    )


def read_key(connection: sa.Connection, study_id: int, trial: StoredTrial) -> TrialKey | None:
    """What identifies the files of a trial; None where the tuner did not run it."""
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


def _trial_id(connection: sa.Connection, study_id: int, number: int) -> int:
    query = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == number
    )
    return int(connection.execute(query).scalar_one())


def _metrics(connection: sa.Connection, study_id: int, number: int) -> dict[str, dict[int, float]]:
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(
            AttemptRow.trial_id, AttemptRow.number, MetricRow.name, MetricRow.step, MetricRow.value
        )
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
        .where(
            TRIALS.c.study_id == study_id,
            TRIALS.c.number == number,
        )
        .order_by(AttemptRow.number, MetricRow.step)
    )
    reports = (
        MetricReport(trial_id=trial_id, attempt=attempt, name=name, step=step, value=value)
        for trial_id, attempt, name, step, value in connection.execute(query)
    )
    curves: dict[str, dict[int, float]] = {}
    for metrics in join_attempts(reports).values():
        for name, curve in sorted(metrics.items()):
            finite = {step: value for step, value in sorted(curve.items()) if value is not None}
            if finite:
                curves[name] = finite
    return curves
