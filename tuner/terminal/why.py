"""`tuner why STUDY 17`: why a trial waits, was pruned or failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.actions.retry import RETRY_OF_ATTR
from tuner.devices.idle_causes import IdleCause
from tuner.devices.occupancy import size_text
from tuner.domain.attempt import AttemptState, Outcome
from tuner.errors import ConfigError
from tuner.queries.checkpoints import read_checkpoints
from tuner.queries.dispatchers import (
    StoredDispatcher,
    has_our_tables,
    is_run_by_tuner,
    read_dispatchers,
    read_last_signs,
)
from tuner.queries.idle import read_idle_now
from tuner.queries.locate import StoredStudy
from tuner.queries.results.rung_trust import read_witness_step
from tuner.queries.schedules import read_members, read_origins, read_why_replaced
from tuner.queries.trials.attempts import StoredAttempt, read_attempts
from tuner.queries.trials.listing import WORDS_WITHOUT_RESULT, word_of
from tuner.queries.trials.params import read_first_rung, read_fixed, read_whole_params
from tuner.store.optuna_tables.pauses import read_paused
from tuner.store.optuna_tables.statements import (
    TRIALS,
    read_curves,
    read_user_attributes,
    read_values,
)
from tuner.store.records.commands import paused_by
from tuner.terminal import wording
from tuner.terminal.idle import idle_texts
from tuner.terminal.times import when, zone

#: Causes that keep a device from a waiting trial. A pause is reported separately.
_HOLD_UP = frozenset(
    {
        IdleCause.GATHERING,
        IdleCause.TAKEN,
        IdleCause.SHARED,
        IdleCause.QUARANTINED,
        IdleCause.DATABASE,
        IdleCause.DISK_FULL,
        IdleCause.LOST,
    }
)

_WITHOUT_RESULT = tuple(word.replace("_", " ") for word in WORDS_WITHOUT_RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    number: int
    id: int
    state: TrialState
    is_paused: bool
    attempts: Sequence[StoredAttempt]
    #: Whether the tuner, not another program, starts the study's trials.
    is_ours: bool


def explain(
    connection: sa.Connection,
    study: StoredStudy,
    number: int,
    now: datetime,
    waits: Sequence[str] = (),
) -> str:
    """Explains a trial's state from the database.

    Args:
        connection: Connection to the database.
        study: The study.
        number: Number of the trial.
        now: The current time.
        waits: What this machine's dispatchers wait for. Shown for a trial without a device.

    Raises:
        ConfigError: If there is no such trial.
    """
    trial = _find(connection, study, number)
    attempts = trial.attempts
    is_left = _is_abandoned(connection, study.id, trial, now)
    now_text = "paused" if trial.is_paused else _now(trial, is_abandoned=is_left)
    lines = [f"Trial {number} of study {study.name!r}: {now_text}"]
    has_result = now_text not in _WITHOUT_RESULT
    lines += _facts(connection, study.id, trial.id, has_result=has_result)
    lines += [f"  {line}" for line in _why_it_does_not_run(connection, study.id, trial, now)]
    has_device = bool(attempts) and attempts[-1].is_open
    if not has_device and not trial.state.is_finished():
        lines += [f"  {line}" for line in waits]
    for attempt in attempts:
        is_last = attempt is attempts[-1]
        is_final = trial.state.is_finished() and is_last
        lines += _attempt(attempt, is_final=is_final, is_abandoned=is_left and is_last)
    if not attempts and trial.state is not TrialState.WAITING:
        lines.append("It was run by another program than the tuner, or imported.")
    return "\n".join(lines)


def read_reason(connection: sa.Connection, study: StoredStudy, number: int, now: datetime) -> str:
    """Why a trial is in its state, in a sentence or two; empty if unknown.

    Raises:
        ConfigError: If there is no such trial.
    """
    trial = _find(connection, study, number)
    if waits := list(_why_it_does_not_run(connection, study.id, trial, now)):
        return " ".join(waits)
    lines = trial.attempts[-1].detail.strip().splitlines() if trial.attempts else []
    if not lines:
        return ""
    # The last line of a traceback is the error.
    is_error = trial.state is TrialState.FAIL or lines[0].startswith("Traceback")
    return lines[-1].strip() if is_error else lines[0].strip()


def _find(connection: sa.Connection, study: StoredStudy, number: int) -> _Trial:
    query = sa.select(TRIALS.c.trial_id, TRIALS.c.state).where(
        TRIALS.c.study_id == study.id, TRIALS.c.number == number
    )
    row = connection.execute(query).first()
    if row is None:
        raise ConfigError(f"There is no trial {number} in study {study.name!r}.")
    return _Trial(
        number=number,
        id=row.trial_id,
        state=row.state,
        is_paused=row.trial_id in read_paused(connection, study.id),
        attempts=read_attempts(connection, study.id, [row.trial_id]).get(row.trial_id, []),
        is_ours=is_run_by_tuner(connection, study.id),
    )


def _why_it_does_not_run(
    connection: sa.Connection, study_id: int, trial: _Trial, now: datetime
) -> Iterator[str]:
    attempts = trial.attempts
    if trial.is_paused:
        yield from _why_paused(connection, study_id, trial.number)
    elif trial.state is TrialState.WAITING:
        yield from _why_it_waits(connection, study_id, trial.number, attempts, now)
    elif _is_abandoned(connection, study_id, trial, now):
        yield from _why_abandoned(read_dispatchers(connection, now, study_id))
    elif trial.state is TrialState.RUNNING and not (attempts and attempts[-1].is_open):
        yield from _why_no_device(connection, read_dispatchers(connection, now, study_id), now)


def _is_abandoned(connection: sa.Connection, study_id: int, trial: _Trial, now: datetime) -> bool:
    """Whether the dispatcher of the trial's open attempt has died."""
    if trial.state is not TrialState.RUNNING or not trial.attempts:
        return False
    last = trial.attempts[-1]
    return last.is_open and last.dispatcher_id in read_last_signs(connection, now, study_id)


def _why_abandoned(starts: Sequence[StoredDispatcher]) -> Iterator[str]:
    yield "The dispatcher that ran it died."
    if any(each.is_alive for each in starts):
        yield "Another dispatcher of the study starts it again."
    else:
        yield "No dispatcher runs the study: start it again, and the trial is resumed."


def _now(trial: _Trial, *, is_abandoned: bool) -> str:
    state, attempts = trial.state, trial.attempts
    if state is TrialState.RUNNING and attempts and attempts[-1].is_open:
        last = attempts[-1]
        if is_abandoned:
            return f"abandoned on {', '.join(last.devices)} of {last.host}"
        return f"{last.state.value} on {', '.join(last.devices)} of {last.host}"
    if state is TrialState.WAITING:
        return "waits"
    if state is TrialState.RUNNING and (attempts or trial.is_ours):
        return "was asked for, and waits for devices"
    outcome, cause = (attempts[-1].outcome, attempts[-1].cause) if attempts else (None, None)
    return word_of(state, outcome, cause, is_paused=False).replace("_", " ")


def _facts(
    connection: sa.Connection, study_id: int, trial_id: int, *, has_result: bool
) -> Iterator[str]:
    params = read_whole_params(connection, study_id, [trial_id]).get(trial_id)
    params = params or read_fixed(connection, study_id, [trial_id]).get(trial_id)
    if params:
        yield f"  parameters: {wording.settings(params)}"
    values = read_values(connection, study_id, [trial_id]).get(trial_id)
    if values and has_result:
        yield f"  result: {', '.join(f'{values[each]:.6g}' for each in sorted(values))}"
    curve = read_curves(connection, study_id, [trial_id])[trial_id]
    if curve:
        last = max(curve)
        yield f"  reports: {len(curve)}, the last at step {last}: {curve[last]:.6g}"
    first = read_first_rung(connection, study_id, trial_id)
    if first is not None:
        yield f"  bracket: {f'compared first at step {first}' if first else 'trained to its end'}"
    step = read_witness_step(connection, trial_id)
    if step is not None:
        yield (
            f"  weak at step {step}, and trained on to check whether the order of trials there "
            "holds later"
        )
    yield from _lineage(connection, study_id, trial_id)
    attributes = read_user_attributes(connection, study_id, [trial_id]).get(trial_id, {})
    if RETRY_OF_ATTR in attributes:
        yield f"  repeats trial {attributes[RETRY_OF_ATTR]}"
    saved = read_checkpoints(connection, [trial_id]).get(trial_id)
    if saved:
        new = saved[0]
        number = "1 checkpoint" if len(saved) == 1 else f"{len(saved)} checkpoints, the newest"
        yield f"  {number}: step {new.step}, {_size(new.size_bytes)}, {_at(new.saved_at)}"
        yield f"    {new.path} on {new.host}"


def _lineage(connection: sa.Connection, study_id: int, trial_id: int) -> Iterator[str]:
    """In a population: the trial's parent, and its replacement."""
    query = sa.select(TRIALS.c.number).where(TRIALS.c.trial_id == trial_id)
    number = connection.execute(query).scalar_one()
    origins = read_origins(connection, study_id)
    if (origin := origins.get(number)) is not None:
        begin = (
            f"at step {origin.step}"
            if origin.step
            else "started from the beginning, without its checkpoint"
        )
        what = "new configuration"
        if origin.parent is not None:
            what = f"copy of trial {origin.parent} {begin}"
        yield f"  {what}, in the place of trial {origin.replaces}"
    for copy, its in origins.items():
        if its.replaces == number:
            what = f"a copy of trial {its.parent}"
            if its.parent is None:
                what = "which has a new configuration"
            yield f"  replaced by trial {copy}, {what}"
    if why := read_why_replaced(connection, trial_id):
        yield f"    {why}"
    copies = [str(copy) for copy, its in origins.items() if its.parent == number]
    if copies:
        yield f"  copied by trial{'s' * (len(copies) > 1)} {', '.join(copies)}"


def _size(size_bytes: int) -> str:
    return size_text(size_bytes) if size_bytes >= 1024**2 else f"{size_bytes / 1024:.1f} KiB"


def _why_paused(connection: sa.Connection, study_id: int, number: int) -> Iterator[str]:
    if number in read_members(connection, study_id):
        yield "It continues once the members of its population behind it have come as far."
        return
    yield "It continues once it is among the best that came to its rung; else it is pruned when"
    yield "the study ends."


def _why_it_waits(
    connection: sa.Connection,
    study_id: int,
    number: int,
    attempts: Sequence[StoredAttempt],
    now: datetime,
) -> Iterator[str]:
    if not attempts:
        yield "It was enqueued, or asked for and put back before it had devices."
    starts = read_dispatchers(connection, now, study_id)
    if not starts:
        yield "The tuner has not run this study: the program that runs it takes this trial next."
        return
    paused = paused_by(connection, study_id) if has_our_tables(connection) else ""
    if paused:
        yield f"The study is paused (by {paused}): tuner resume."
    if not any(each.is_alive for each in starts):
        yield "No dispatcher runs the study: start it again, and the trial is resumed."
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
    yield f"{n_before} that wait come before it; it starts when devices are free."
    yield from _why_no_device(connection, starts, now)


def _why_no_device(
    connection: sa.Connection, starts: Sequence[StoredDispatcher], now: datetime
) -> Iterator[str]:
    """Free devices that are not given to any trial now."""
    idle = read_idle_now(connection, starts, now)
    for each in idle_texts((one for one in idle if one.cause in _HOLD_UP), now):
        yield f"No trial starts on {each}."


def _attempt(attempt: StoredAttempt, *, is_final: bool, is_abandoned: bool) -> Iterator[str]:
    where = f"{', '.join(attempt.devices) or 'no device'} of {attempt.host}"
    end = _end(attempt, is_final=is_final, is_abandoned=is_abandoned)
    yield f"  attempt {attempt.number}: {end}"
    since = f", from {_at(attempt.leased_at)}" if attempt.leased_at else ""
    yield f"    on {where}{since}"
    if attempt.detail:
        yield wording.indent(attempt.detail)
    if attempt.outcome is not None and attempt.outcome.is_failure:
        yield f"    whole log: {attempt.log_path}"


def _at(at: datetime) -> str:
    """To the minute, in this machine's time zone: `2026-03-01 13:00 CET`."""
    return f"{when(at)} {zone()}"


def _end(attempt: StoredAttempt, *, is_final: bool, is_abandoned: bool) -> str:
    if is_abandoned:
        return "its dispatcher died"
    if attempt.outcome is None:
        return {
            AttemptState.LEASED: "has its devices, and starts",
            AttemptState.RUNNING: "runs",
            AttemptState.STOPPING: "is stopping",
        }.get(attempt.state, "has ended; its devices are awaited")
    words = wording.outcome_text(attempt.outcome)
    if attempt.outcome in (Outcome.CANCELLED, Outcome.LOST) and not is_final:
        words += ", so that the trial was to be run again"
    return f"{words} ({attempt.cause.value.replace('_', ' ')})" if attempt.cause else words
