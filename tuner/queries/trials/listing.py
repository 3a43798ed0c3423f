"""`tuner trials`: the trials of a study, chosen by one slim statement, then read in full."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import Cause, Outcome
from tuner.errors import ConfigError
from tuner.queries.dispatchers import is_run_by_tuner, read_last_signs
from tuner.queries.studies import Objective
from tuner.queries.trials.attempt_times import AttemptTimes, read_attempt_times, times_of
from tuner.queries.trials.attempts import StoredAttempt, read_attempts
from tuner.queries.trials.last_reports import read_last_reports
from tuner.queries.trials.params import read_fixed, read_whole_params
from tuner.search_spaces import ParamValue
from tuner.search_spaces.space import nearest
from tuner.store.optuna_tables.feasibility import infeasible_trials
from tuner.store.optuna_tables.pauses import read_paused
from tuner.store.optuna_tables.statements import (
    MAX_LISTED,
    TRIALS,
    aware,
    read_curves,
    read_user_attributes,
    read_values,
)

#: Before the name of a parameter in CSV, as in the data frames of Optuna.
PARAM_PREFIX = "params_"
#: Our words for Optuna's states.
WORDS: Mapping[TrialState, str] = {
    TrialState.COMPLETE: "completed",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
#: Outcomes that are more specific than the trial's state.
TELLING = (
    (TrialState.FAIL, Outcome.OUT_OF_MEMORY),
    (TrialState.FAIL, Outcome.TIMED_OUT),
    (TrialState.FAIL, Outcome.FAILED_TO_START),
    # An infeasible configuration is stored as pruned, with a constraint.
    (TrialState.PRUNED, Outcome.OUT_OF_MEMORY),
)
#: A failure cause that is more specific than its outcome.
NOT_A_NUMBER = Cause.NOT_A_NUMBER.value
#: Optuna stores such a trial's last report as its value.
WORDS_WITHOUT_RESULT = (Outcome.OUT_OF_MEMORY.value, NOT_A_NUMBER)
_NAN_STATES = (TrialState.FAIL, TrialState.PRUNED)
PAUSED = Outcome.PAUSED.value
#: Marked as running by a dispatcher that has died.
ABANDONED = "abandoned"
BY_NUMBER, BY_VALUE, BY_DURATION = "number", "value", "duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which trials, and in which order."""

    #: Words of `known_states()`; empty for all.
    states: frozenset[str] = frozenset()
    #: BY_NUMBER (the newest last), BY_DURATION (the longest first), BY_VALUE or the name of an
    #: objective (the best first). None: by value where `top` is given, else by number.
    sort: str | None = None
    #: Maximum number of first trials; by value only feasible, completed trials.
    top: int | None = None
    #: Maximum number of newest trials.
    last: int | None = None
    #: Only these numbers; None for all.
    numbers: frozenset[int] | None = None

    @property
    def order(self) -> str:
        return self.sort or (BY_NUMBER if self.top is None else BY_VALUE)

    @property
    def is_of_best(self) -> bool:
        return self.top is not None and self.order not in (BY_NUMBER, BY_DURATION)

    @property
    def wanted(self) -> frozenset[str]:
        """The requested states, given by name or implied by `top`."""
        is_implied = self.is_of_best and not self.states
        return frozenset({WORDS[TrialState.COMPLETE]}) if is_implied else self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial with all that belongs to it."""

    number: int
    state: TrialState
    #: Optuna's values, by objective; empty if there are none.
    values: Mapping[str, float]
    #: Whether it breaks a constraint.
    is_infeasible: bool
    is_paused: bool
    #: Whether the dispatcher of its open attempt has died.
    is_abandoned: bool
    #: Whether it was suggested ahead of time: it waits for a device, running to Optuna.
    is_ahead: bool
    #: Start of the first attempt.
    started_at: datetime | None
    #: End of the last attempt, if the trial has ended.
    completed_at: datetime | None
    #: In attempts: without the time in which it was paused or waited.
    duration_s: float | None
    #: Constants included. For a waiting trial: its enqueued parameters.
    params: Mapping[str, ParamValue]
    attempts: Sequence[StoredAttempt]
    user_attributes: Mapping[str, object]
    #: By step; None if they were not requested.
    reports: Mapping[int, float] | None = None
    #: Step of the last report of an unfinished trial; None if there is none.
    last_step: int | None = None
    last_values: Mapping[str, float] = field(default_factory=dict)

    @property
    def lacks_result(self) -> bool:
        """Whether its values are only its last report: it ran out of memory, or returned NaN."""
        return self.word in WORDS_WITHOUT_RESULT

    @property
    def result(self) -> Mapping[str, float]:
        """The values; empty if they are only the last report of a failed trial."""
        return {} if self.lacks_result else self.values

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the last attempt; None if it runs, or the tuner did not run it."""
        return self.attempts[-1].outcome if self.attempts else None

    @property
    def word(self) -> str:
        cause = self.attempts[-1].cause if self.attempts else None
        return word_of(
            self.state,
            self.outcome,
            cause,
            is_paused=self.is_paused,
            is_abandoned=self.is_abandoned,
            is_ahead=self.is_ahead,
        )


def word_of(
    state: TrialState,
    outcome: Outcome | None,
    cause: Cause | None,
    *,
    is_paused: bool,
    is_abandoned: bool = False,
    is_ahead: bool = False,
) -> str:
    """The word for a trial's state; the outcome or cause of its last attempt if more specific."""
    if is_paused:
        return PAUSED
    if is_ahead:
        return WORDS[TrialState.WAITING]
    if is_abandoned and state is TrialState.RUNNING:
        return ABANDONED
    is_failure = outcome is not None and outcome.is_failure
    if is_failure and cause is Cause.NOT_A_NUMBER and state in _NAN_STATES:
        return NOT_A_NUMBER
    if outcome is not None and (state, outcome) in TELLING:
        return outcome.value
    return WORDS[state]


def known_states() -> list[str]:
    telling = dict.fromkeys(outcome.value for _, outcome in TELLING)
    return [*WORDS.values(), *telling, NOT_A_NUMBER, PAUSED, ABANDONED]


def check_choice(choice: Choice, objectives: Sequence[Objective]) -> None:
    """Checks a choice.

    Raises:
        ConfigError: If there is no such state or order.
    """
    for state in sorted(choice.states):
        _check_word(state, known_states(), "--state")
    orders = [BY_NUMBER, BY_VALUE, BY_DURATION, *(each.name for each in objectives)]
    _check_word(choice.order, list(dict.fromkeys(orders)), "--sort")
    if choice.top is not None and choice.last is not None:
        raise ConfigError("--top and --last exclude each other. Give one of them.")


def _check_word(word: str, known: list[str], option: str) -> None:
    if word not in known:
        near = nearest(word, known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ConfigError(f"is {word!r}, but must be one of {', '.join(known)}.{hint}", key=option)


def read_trials(
    connection: sa.Connection,
    study_id: int,
    objectives: Sequence[Objective],
    choice: Choice,
    *,
    now: datetime,
    with_reports: bool = False,
) -> list[StoredTrial]:
    """Reads the chosen trials, in order.

    Raises:
        ConfigError: If there is no such state or order.
    """
    check_choice(choice, objectives)
    chosen = _choose(connection, study_id, objectives, choice, now)
    ids = None if len(chosen) > MAX_LISTED else [row.trial_id for row in chosen]
    return _read_parts(
        connection, study_id, objectives, chosen, ids, now=now, with_reports=with_reports
    )


def _choose(
    connection: sa.Connection,
    study_id: int,
    objectives: Sequence[Objective],
    choice: Choice,
    now: datetime,
) -> list[sa.Row[Any]]:
    rows = _slim_rows(connection, study_id, choice)
    if _needs_outcomes(choice):
        rows = _of_outcomes(connection, study_id, rows, choice.wanted, now)
    if choice.last is not None:
        rows = rows[-choice.last :]
    if choice.order == BY_DURATION:
        times = read_attempt_times(connection, study_id, now=now)
        rows = sorted(
            rows, key=lambda row: -(_duration_s(row, times.get(row.trial_id), now) or 0.0)
        )
    elif choice.order != BY_NUMBER:
        rows = _ranked(connection, study_id, objectives, rows, choice)
    return rows[: choice.top]


def _needs_outcomes(choice: Choice) -> bool:
    """Whether Optuna's states alone do not determine the chosen trials."""
    words = {word for state, word in WORDS.items() if state is not TrialState.WAITING}
    return not choice.wanted.issubset(words)


def _slim_rows(connection: sa.Connection, study_id: int, choice: Choice) -> list[sa.Row[Any]]:
    """Rows by trial number; if an outcome is requested, of all its states."""
    query = sa.select(TRIALS).where(TRIALS.c.study_id == study_id)
    states = {state for state, word in WORDS.items() if word in choice.wanted}
    states |= {state for state, outcome in TELLING if outcome.value in choice.wanted}
    if NOT_A_NUMBER in choice.wanted:
        states.update(_NAN_STATES)
    if PAUSED in choice.wanted:
        states.add(TrialState.WAITING)
    if ABANDONED in choice.wanted:
        states.add(TrialState.RUNNING)
    if choice.numbers is not None:
        query = query.where(TRIALS.c.number.in_(choice.numbers))
    if states:
        query = query.where(TRIALS.c.state.in_(states))
    if choice.last is not None and not _needs_outcomes(choice):
        query = query.limit(choice.last)
    rows = connection.execute(query.order_by(TRIALS.c.number.desc())).all()
    return list(reversed(rows))


def _of_outcomes(
    connection: sa.Connection,
    study_id: int,
    rows: list[sa.Row[Any]],
    states: Collection[str],
    now: datetime,
) -> list[sa.Row[Any]]:
    attempts = read_attempts(connection, study_id)
    last_signs = read_last_signs(connection, now, study_id)
    paused = read_paused(connection, study_id)
    kept = []
    for row in rows:
        last = attempts[row.trial_id][-1] if row.trial_id in attempts else None
        outcome, cause = (last.outcome, last.cause) if last else (None, None)
        is_paused = row.trial_id in paused
        is_abandoned = last is not None and last.is_open and last.dispatcher_id in last_signs
        is_of_state = WORDS[row.state] in states and not is_paused
        word = word_of(row.state, outcome, cause, is_paused=is_paused, is_abandoned=is_abandoned)
        if is_of_state or word in states:
            kept.append(row)
    return kept


def _ranked(
    connection: sa.Connection,
    study_id: int,
    objectives: Sequence[Objective],
    rows: list[sa.Row[Any]],
    choice: Choice,
) -> list[sa.Row[Any]]:
    """The best first; then those that break a constraint, then those without a value."""
    place = _place_of(choice.order, objectives)
    sign = -1.0 if objectives[place].is_maximized else 1.0
    values = read_values(connection, study_id)
    infeasible = infeasible_trials(connection, study_id)

    def rank(row: sa.Row[Any]) -> tuple[bool, bool, float, int]:
        value = values.get(row.trial_id, {}).get(place)
        worth = math.inf if value is None else sign * value
        return (value is None, row.trial_id in infeasible, worth, row.number)

    ranked = sorted(rows, key=rank)
    if not choice.is_of_best:
        return ranked
    return [row for row in ranked if row.trial_id in values and row.trial_id not in infeasible]


def _place_of(sort: str, objectives: Sequence[Objective]) -> int:
    names = [each.name for each in objectives]
    return names.index(sort) if sort in names else 0


def _read_parts(
    connection: sa.Connection,
    study_id: int,
    objectives: Sequence[Objective],
    rows: Sequence[sa.Row[Any]],
    ids: Sequence[int] | None,
    *,
    now: datetime,
    with_reports: bool,
) -> list[StoredTrial]:
    all_ids = [row.trial_id for row in rows]
    values = read_values(connection, study_id, ids)
    params = read_whole_params(connection, study_id, all_ids)
    fixed = read_fixed(connection, study_id, ids)
    attempts = read_attempts(connection, study_id, ids)
    attributes = read_user_attributes(connection, study_id, ids)
    infeasible = infeasible_trials(connection, study_id)
    curves = read_curves(connection, study_id, all_ids) if with_reports else None
    paused = read_paused(connection, study_id)
    open_ids = [row.trial_id for row in rows if not row.state.is_finished()]
    names = [each.name for each in objectives]
    last = read_last_reports(connection, study_id, names, open_ids)
    is_any_open = any(each.is_open for of_trial in attempts.values() for each in of_trial)
    last_signs = read_last_signs(connection, now, study_id) if is_any_open else {}
    ahead = trials_ahead(connection, study_id, rows, attempts)
    return [
        StoredTrial(
            number=row.number,
            state=row.state,
            values=_named(values.get(row.trial_id, {}), objectives),
            is_infeasible=row.trial_id in infeasible,
            **_instants(
                row,
                times_of(attempts.get(row.trial_id, ()), last_signs),
                now,
                is_ahead=row.trial_id in ahead,
            ),
            params=_with_fixed(row, params[row.trial_id], fixed),
            attempts=attempts.get(row.trial_id, ()),
            user_attributes=attributes.get(row.trial_id, {}),
            reports=curves[row.trial_id] if curves is not None else None,
            is_paused=row.trial_id in paused,
            last_step=last.get(row.trial_id, (None, {}))[0],
            last_values=last.get(row.trial_id, (None, {}))[1],
        )
        for row in rows
    ]


def _named(values: Mapping[int, float], objectives: Sequence[Objective]) -> dict[str, float]:
    return {each.name: values[i] for i, each in enumerate(objectives) if i in values}


def _with_fixed(
    row: sa.Row[Any],
    params: Mapping[str, ParamValue],
    fixed: Mapping[int, Mapping[str, ParamValue]],
) -> dict[str, ParamValue]:
    told = fixed.get(row.trial_id, {}) if row.state is TrialState.WAITING else {}
    return {**told, **params}


class _Instants(TypedDict):
    started_at: datetime | None
    completed_at: datetime | None
    duration_s: float | None
    is_abandoned: bool
    is_ahead: bool


def trials_ahead(
    connection: sa.Connection,
    study_id: int,
    rows: Sequence[sa.Row[Any]],
    attempts: Collection[int],
) -> frozenset[int]:
    """Ids of trials that wait for their first device although Optuna has them as running.

    A dispatcher prefetches a trial if devices would otherwise wait for a suggestion.

    Args:
        connection: With a consistent snapshot.
        study_id: Id of the study.
        rows: With `trial_id` and `state`.
        attempts: Ids of trials that have attempts.
    """
    running = {row.trial_id for row in rows if row.state is TrialState.RUNNING}
    found = running.difference(attempts)
    return frozenset(found if found and is_run_by_tuner(connection, study_id) else ())


def _instants(
    row: sa.Row[Any], times: AttemptTimes | None, now: datetime, *, is_ahead: bool
) -> _Instants:
    if is_ahead:
        nothing: _Instants = {
            "started_at": None,
            "completed_at": None,
            "duration_s": None,
            "is_abandoned": False,
            "is_ahead": True,
        }
        return nothing
    completed_at = aware(row.datetime_complete)
    if row.state.is_finished() and times is not None and times.left_at is not None:
        completed_at = times.left_at
    return {
        "started_at": times.begun_at if times is not None else aware(row.datetime_start),
        "completed_at": completed_at,
        "duration_s": _duration_s(row, times, now),
        "is_abandoned": times is not None and times.abandoned_at is not None,
        "is_ahead": False,
    }


def _duration_s(row: sa.Row[Any], times: AttemptTimes | None, now: datetime) -> float | None:
    """Duration until now for a running trial; None if it never ran."""
    if times is not None:
        return times.duration_s(None if row.state.is_finished() else now)
    started_at = aware(row.datetime_start)
    if started_at is None or row.state is TrialState.WAITING:
        return None
    ended_at = aware(row.datetime_complete) or now
    return max(0.0, (ended_at - started_at).total_seconds())
