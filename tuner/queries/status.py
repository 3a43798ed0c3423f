"""`tuner status`: results of a study, and its running trials."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import sqlalchemy as sa
from optuna.trial import TrialState
from pydantic import ValidationError

from tuner.config import BudgetConfig
from tuner.domain.budget import Budget, EndedUses, Spent
from tuner.queries.allocations import StoredAllocation, read_allocations
from tuner.queries.dispatchers import StoredDispatcher, has_our_tables, read_dispatchers
from tuner.queries.forecast import Forecast, forecast, trials_left
from tuner.queries.idle import IdleNow, read_idle_now
from tuner.queries.locate import StoredStudy
from tuner.queries.results.confirmations import Confirmation, read_confirmation
from tuner.queries.results.rung_trust import read_rung_trust
from tuner.queries.running import RunningTrial, read_running
from tuner.queries.studies import StudySummary, read_studies
from tuner.queries.study_state import Grid, Standing, judge
from tuner.queries.trials.listing import BY_VALUE, Choice, StoredTrial, read_trials
from tuner.queries.trials.params import read_params, read_points
from tuner.queries.usage import read_energy_kwh
from tuner.search.rungs.order.stored_trust import StoredTrust
from tuner.search.samplers.grid_points import GridPoints
from tuner.search_spaces import Scalar
from tuner.search_spaces.strict_yaml import YamlError, read_yaml
from tuner.store.optuna_tables.feasibility import infeasible_trials
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS, ids_of, read_values
from tuner.store.records.commands import kept_commands, paused_by
from tuner.store.records.dispatchers.starts import held_now_s, past_use
from tuner.store.records.durations import ended_uses
from tuner.store.records.population_rows import POPULATION_IS_OVER
from tuner.store.records.programs import last_program
from tuner.store.schema.models import DispatcherRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a study, and the reason for its state."""

    standing: Standing
    reason: str
    study: StudySummary
    budget: Budget
    spent: Spent

    @property
    def fraction(self) -> float | None:
        """Used fraction of the limit that is closest to its end; None without a limit."""
        return self.budget.fraction(replace(self.spent, trials=self.study.n_finished))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStatus:
    """Everything that `tuner status` shows."""

    standing: Standing
    reason: str
    exit_code: int
    study: StudySummary
    budget: Budget
    spent: Spent
    #: Energy of all attempts; None if no device reports it.
    energy_kwh: float | None
    #: `user@host`; empty if it is not paused.
    paused_by: str
    #: With one objective only.
    best: StoredTrial | None
    running: Sequence[RunningTrial]
    #: Nodes of engines, those that have ended included.
    allocations: Sequence[StoredAllocation]
    #: Live dispatchers, and the last ended one.
    dispatchers: Sequence[StoredDispatcher]
    #: Devices without a trial.
    idle: Sequence[IdleNow]
    #: Forecast of the final value while a dispatcher works on it; None without enough data.
    forecast: Forecast | None = None
    #: When that is, at the rate so far.
    ends_at: datetime | None = None
    #: Results of confirmation runs; None if there are none.
    confirmation: Confirmation | None = None
    #: The function, or the command with its arguments, of the last start; empty without one.
    program: str = ""
    #: The pruner's rung check; None if it is off.
    rung_trust: StoredTrust | None = None
    #: Changes by `tuner set` kept for the next start, with their senders.
    kept: Sequence[str] = ()


def read_status(
    connection: sa.Connection, stored: StoredStudy, budget: BudgetConfig | None, now: datetime
) -> StudyStatus:
    """Reads one study.

    Args:
        connection: With a consistent snapshot.
        stored: The study.
        budget: Budget of the study file, used if it has changed since the last start and no
            dispatcher works on the study; None for the budget of the last start.
        now: The current time.
    """
    (study,) = read_studies(connection, now, stored.id)
    starts = read_dispatchers(connection, now, stored.id)
    is_at_work = any(each.is_alive for each in starts)
    progress = read_progress(connection, study, budget, is_at_work=is_at_work)
    return StudyStatus(
        standing=progress.standing,
        reason=progress.reason,
        exit_code=progress.standing.exit_code,
        study=study,
        budget=progress.budget,
        spent=progress.spent,
        energy_kwh=read_energy_kwh(connection, stored.id),
        paused_by=paused_by(connection, stored.id) if has_our_tables(connection) else "",
        best=_best(connection, study, now),
        running=read_running(connection, study, starts, now),
        allocations=read_allocations(connection, stored.id),
        dispatchers=[each for each in starts if each.is_alive or each is starts[-1]],
        idle=read_idle_now(connection, starts, now),
        forecast=_forecast(connection, study, progress),
        ends_at=_ends_at(progress, now),
        confirmation=read_confirmation(connection, study.name),
        program=last_program(connection, stored.id) if has_our_tables(connection) else "",
        rung_trust=read_rung_trust(connection, stored.id),
        kept=_kept(connection, stored.id) if has_our_tables(connection) else (),
    )


def _kept(connection: sa.Connection, study_id: int) -> list[str]:
    return [
        f"{key}={value} (asked for by {command.asked_by})"
        for command in kept_commands(connection, study_id)
        for key, value in command.arguments.items()
    ]


def read_progress(
    connection: sa.Connection,
    study: StudySummary,
    budget: BudgetConfig | None = None,
    *,
    is_at_work: bool = False,
) -> Progress:
    """Progress of a study.

    Args:
        connection: With a consistent snapshot.
        study: The study.
        budget: Budget of the study file, if available. Used if it has changed since the last start,
            whose flags may have set other limits.
        is_at_work: Whether a dispatcher works on it; its limits, which flags and commands may have
            changed, then apply.
    """
    limits = _limits(connection, study.id, budget, is_at_work=is_at_work)
    spent = _spent(connection, study)
    uses = ended_uses(connection, study.id) if has_our_tables(connection) else EndedUses()
    grid = _grid(connection, study.id)
    is_over = study.n_finished == sum(study.trials.values()) and (
        _last_end_reason(connection, study.id) == POPULATION_IS_OVER
    )
    standing, reason = judge(study, limits, spent, grid, uses.typical, is_population_over=is_over)
    return Progress(
        standing=standing,
        reason=reason,
        study=study,
        budget=limits,
        spent=spent,
    )


def _forecast(
    connection: sa.Connection, study: StudySummary, progress: Progress
) -> Forecast | None:
    if progress.standing is not Standing.RUNNING or len(study.objectives) != 1:
        return None
    n_more = trials_left(study.n_finished, progress.fraction, progress.budget.trials)
    completed = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study.id, TRIALS.c.state == TrialState.COMPLETE
    )
    able = set(connection.execute(completed).scalars()) - infeasible_trials(connection, study.id)
    found = sorted(read_values(connection, study.id, able).items())
    values = [by_place[0] for trial_id, by_place in found if trial_id in able and by_place]
    finite = np.array([each for each in values if math.isfinite(each)])
    is_maximized = study.objectives[0].is_maximized
    return forecast(finite, study.n_finished, is_maximized=is_maximized, n_more=n_more)


def _ends_at(progress: Progress, now: datetime) -> datetime | None:
    """Estimated end, at the average rate of all dispatcher time."""
    fraction = progress.fraction
    if progress.standing is not Standing.RUNNING or not fraction:
        return None
    return now + timedelta(seconds=progress.spent.time_s * (1 - fraction) / fraction)


def _limits(
    connection: sa.Connection, study_id: int, budget: BudgetConfig | None, *, is_at_work: bool
) -> Budget:
    query = (
        sa.select(DispatcherRow.budget, DispatcherRow.study_file)
        .where(DispatcherRow.study_id == study_id)
        .order_by(DispatcherRow.id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none() if has_our_tables(connection) else None
    if row is not None and row.budget is not None:
        is_same_file = budget is None or budget.limits == _budget_in(row.study_file)
        if is_at_work or is_same_file:
            return Budget(**row.budget)
    if budget is not None:
        return budget.limits
    return _budget_in(row.study_file) if row is not None else Budget()


def _budget_in(study_file: str) -> Budget:
    """Budget of a start by an older version, which recorded only its file."""
    try:
        document = read_yaml(study_file)
        budget = document.get("budget") if isinstance(document, dict) else None
        return BudgetConfig.model_validate(budget or {}).limits
    except (YamlError, ValidationError):
        return Budget()  # A file that only its flags have put right.


def _last_end_reason(connection: sa.Connection, study_id: int) -> str:
    """End reason of the last ended dispatcher; empty if it did not end by itself."""
    if not has_our_tables(connection):
        return ""
    query = (
        sa.select(DispatcherRow.end_reason)
        .where(DispatcherRow.study_id == study_id, DispatcherRow.ended_at.is_not(None))
        .order_by(DispatcherRow.ended_at.desc(), DispatcherRow.id.desc())
        .limit(1)
    )
    return connection.execute(query).scalar() or ""


def _spent(connection: sa.Connection, study: StudySummary) -> Spent:
    if not has_our_tables(connection):
        return Spent(trials=study.n_begun, time_s=0.0, device_s=0.0)
    past = past_use(connection, study.id)
    return Spent(
        trials=study.n_begun,
        time_s=past.time_s,
        device_s=past.device_s + held_now_s(connection, study.id),
        energy_kwh=past.energy_kwh,
    )


def _grid(connection: sa.Connection, study_id: int) -> Grid | None:
    """None if the study's sampler is not Optuna's grid, which stores its points in trials."""
    of_study = SYSTEM_ATTRS.c.trial_id.in_(ids_of(study_id))
    space = sa.select(SYSTEM_ATTRS.c.value_json).where(
        of_study, SYSTEM_ATTRS.c.key == "search_space"
    )
    stored = connection.execute(space.limit(1)).scalar()
    if stored is None:
        return None
    values: dict[str, list[Scalar | None]] = json.loads(stored)
    points = GridPoints(tuple(values), itertools.product(*values.values()))
    ended = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id,
        TRIALS.c.state.in_([state for state in TrialState if state.is_finished()]),
    )
    ids = set(connection.execute(ended).scalars())
    noted = read_points(connection, study_id)
    params = read_params(connection, study_id)
    for trial_id in ids:
        points.note(noted.get(trial_id, {}), params.get(trial_id, {}))
    return Grid(n_points=len(points), n_tried=points.n_tried)


def _best(connection: sa.Connection, study: StudySummary, now: datetime) -> StoredTrial | None:
    if len(study.objectives) > 1:
        return None
    if not study.best:
        return None
    # Infinite values, which are nobody's best, may come first.
    for top in (1, study.n_trials):
        choice = Choice(sort=BY_VALUE, top=top)
        trials = read_trials(connection, study.id, study.objectives, choice, now=now)
        found = next((t for t in trials if all(map(math.isfinite, t.values.values()))), None)
        if found is not None:
            return found
    return None
