"""`tuner why STUDY 17`: what a trial waits for, why it was pruned, what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.attempt import AttemptState, Outcome
from tuner.errors import ConfigError
from tuner.store.commands import paused_by
from tuner.verbs.attempts import StoredAttempt, read_attempts
from tuner.verbs.dispatchers import has_our_tables, read_dispatchers
from tuner.verbs.optuna_tables import TRIALS, read_curves, read_user_attributes, read_values
from tuner.verbs.retrying import RETRY_OF_ATTR
from tuner.verbs.shown import instant
from tuner.verbs.source import StoredStudy
from tuner.verbs.trial_params import read_fixed, read_whole_params
from tuner.view import text


def explain(connection: sa.Connection, study: StoredStudy, number: int, now: datetime) -> str:
    """All that the database knows about how a trial came to where it is.

    Raises:
        ConfigError: If there is no such trial.
    """
    query = sa.select(TRIALS.c.trial_id, TRIALS.c.state).where(
        TRIALS.c.study_id == study.id, TRIALS.c.number == number
    )
    trial = connection.execute(query).first()
    if trial is None:
        raise ConfigError(f"There is no trial {number} in study {study.name!r}.")
    attempts = read_attempts(connection, study.id, [trial.trial_id]).get(trial.trial_id, [])
    lines = [f"Trial {number} of study {study.name!r}: {_now(trial.state, attempts)}"]
    lines += _facts(connection, study.id, trial.trial_id)
    if trial.state is TrialState.WAITING:
        lines += _why_it_waits(connection, study.id, number, attempts, now)
    for attempt in attempts:
        lines += _attempt(attempt)
    if not attempts and trial.state is not TrialState.WAITING:
        lines.append("It was run by another program than the tuner, or imported.")
    return "\n".join(lines)


def _now(state: TrialState, attempts: Sequence[StoredAttempt]) -> str:
    if state is TrialState.RUNNING and attempts and attempts[-1].is_open:
        last = attempts[-1]
        return f"{last.state.value} on {', '.join(last.devices)} of {last.host}"
    return {
        TrialState.WAITING: "waits",
        TrialState.RUNNING: "was asked for, and waits for devices",
        TrialState.COMPLETE: "completed",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }[state]


def _facts(connection: sa.Connection, study_id: int, trial_id: int) -> Iterator[str]:
    params = read_whole_params(connection, study_id, [trial_id]).get(trial_id)
    params = params or read_fixed(connection, study_id, [trial_id]).get(trial_id)
    if params:
        yield f"  parameters: {text.settings(params)}"
    values = read_values(connection, study_id, [trial_id]).get(trial_id)
    if values:
        yield f"  result: {', '.join(f'{values[each]:.6g}' for each in sorted(values))}"
    curve = read_curves(connection, study_id, [trial_id])[trial_id]
    if curve:
        last = max(curve)
        yield f"  reports: {len(curve)}, the last at step {last}: {curve[last]:.6g}"
    attributes = read_user_attributes(connection, study_id, [trial_id]).get(trial_id, {})
    if RETRY_OF_ATTR in attributes:
        yield f"  repeats trial {attributes[RETRY_OF_ATTR]}"


def _why_it_waits(
    connection: sa.Connection,
    study_id: int,
    number: int,
    attempts: Sequence[StoredAttempt],
    now: datetime,
) -> Iterator[str]:
    if not attempts:
        yield "  It was enqueued, or asked for and put back before it had devices."
    alive = [each for each in read_dispatchers(connection, now, study_id) if each.is_alive]
    paused = paused_by(connection, study_id) if has_our_tables(connection) else ""
    if paused:
        yield f"  The study is paused (by {paused}): tuner resume."
    if not alive:
        yield "  Nobody works on the study: start it again, and it is taken up."
        return
    before = (
        sa.select(sa.func.count())
        .select_from(TRIALS)
        .where(
            TRIALS.c.study_id == study_id,
            TRIALS.c.state == TrialState.WAITING,
            TRIALS.c.number < number,
        )
    )
    n_before = connection.execute(before).scalar_one()
    yield f"  {n_before} that wait come before it; it starts when devices are free."


def _attempt(attempt: StoredAttempt) -> Iterator[str]:
    where = f"{', '.join(attempt.devices) or 'no device'} of {attempt.host}"
    yield f"  attempt {attempt.number}: {_end(attempt)}"
    since = f", from {instant(attempt.leased_at)}" if attempt.leased_at else ""
    yield f"    on {where}{since}"
    if attempt.detail:
        yield text.indent(attempt.detail)
    if attempt.outcome is not None and attempt.outcome.is_failure:
        yield f"    whole log: {attempt.log_path}"


def _end(attempt: StoredAttempt) -> str:
    if attempt.outcome is None:
        return {
            AttemptState.LEASED: "has its devices, and starts",
            AttemptState.RUNNING: "runs",
            AttemptState.STOPPING: "was told to end",
        }.get(attempt.state, "has ended; its devices are awaited")
    words = text.outcome_text(attempt.outcome)
    if attempt.outcome in (Outcome.CANCELLED, Outcome.LOST):
        words += ", so that the trial was to be run again"
    return f"{words} ({attempt.cause.value.replace('_', ' ')})" if attempt.cause else words
