"""The best configurations, as text for files, for a shell and for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from tuner.app.data.convergence.series import pareto_front
from tuner.app.data.digits import four_digits
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.one_trial import read_key
from tuner.checkpoints.layout import newest_whole
from tuner.checkpoints.paths import checkpoints_in
from tuner.checkpoints.trial_folders import locate
from tuner.domain.attempt import Outcome
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.results.best import (
    BestConfiguration,
    FreshRuns,
    command_of,
    confirmed_first,
    fresh_runs_of,
)
from tuner.queries.results.confirmations import Confirmation, read_confirmation
from tuner.queries.studies import Objective
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.trials.listing import BY_VALUE, Choice, StoredTrial, read_trials
from tuner.queries.uploads import read_uploads
from tuner.store.schema.models import DispatcherRow


def read_best(
    connection: sa.Connection,
    study_id: int,
    name: str,
    objectives: Sequence[Objective],
    trials: TrialColumns,
    *,
    n: int,
    now: datetime,
) -> list[BestConfiguration]:
    """The best configurations in order; with several objectives the Pareto front."""
    fresh = fresh_runs_of(read_confirmation(connection, name))
    numbers = _candidates(trials, objectives, n) | fresh.keys()
    choice = Choice(sort=BY_VALUE, top=len(numbers), numbers=numbers)
    found = read_trials(connection, study_id, objectives, choice, now=now)
    commits = _commits(connection, study_id)
    chosen = confirmed_first(found, fresh)[:n]
    ids = dict(zip(trials.numbers.tolist(), trials.ids.tolist(), strict=True))
    rows = _Rows(connection=connection, study_id=study_id, ids=ids, commits=commits)
    return [_configuration(rows, name, trial, fresh.get(trial.number)) for trial in chosen]


def _candidates(trials: TrialColumns, objectives: Sequence[Objective], n: int) -> frozenset[int]:
    if len(objectives) > 1:
        front = pareto_front(trials, [each.is_maximized for each in objectives])
        return frozenset(trials.numbers[front].tolist())
    able = trials.where(trials.is_candidate)
    sign = -1.0 if objectives[0].is_maximized else 1.0
    order = (sign * able.values[:, 0]).argsort(kind="stable")[:n]
    return frozenset(able.numbers[order].tolist())


def _commits(connection: sa.Connection, study_id: int) -> dict[int, tuple[str | None, bool | None]]:
    """By dispatcher: the commit, and whether the files differed from it."""
    if not has_our_tables(connection):
        return {}
    query = sa.select(DispatcherRow.id, DispatcherRow.git_commit, DispatcherRow.git_is_dirty).where(
        DispatcherRow.study_id == study_id
    )
    rows = connection.execute(query)
    return {row.id: (row.git_commit, row.git_is_dirty) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What else the database has of trials."""

    connection: sa.Connection
    study_id: int
    #: By number of the trial.
    ids: Mapping[int, int]
    commits: Mapping[int, tuple[str | None, bool | None]]


def _configuration(
    rows: _Rows, study: str, trial: StoredTrial, confirmed: FreshRuns | None
) -> BestConfiguration:
    origin = next((a for a in trial.attempts if a.outcome is Outcome.COMPLETED), None)
    unknown = (None, None)
    commit, is_dirty = rows.commits.get(origin.dispatcher_id, unknown) if origin else unknown
    seed, trial_id = origin.seed if origin else 0, rows.ids[trial.number]
    return BestConfiguration(
        study=study,
        trial_number=trial.number,
        params=trial.params,
        values=trial.values,
        seed=seed,
        git_commit=commit,
        git_is_dirty=is_dirty,
        checkpoint=_checkpoint(rows, trial, origin) if origin else None,
        confirmed=confirmed,
        command=command_of(rows.connection, trial_id, trial.number, trial.params, seed),
    )


def _checkpoint(rows: _Rows, trial: StoredTrial, origin: StoredAttempt) -> str | None:
    """The newest one on this machine, else its address in the object store."""
    folder: Path | None = Path(origin.log_path).parent
    key = read_key(rows.connection, rows.study_id, trial)
    if key is not None and folder is not None:
        folder = locate(folder, key)
    found = None if folder is None else newest_whole(checkpoints_in(folder))
    if found is not None:
        return str(found)
    uploads = read_uploads(rows.connection, rows.ids[trial.number])
    return uploads[0].uri if uploads else None


def why_confirmed(confirmation: Confirmation, objective: Objective, trials: TrialColumns) -> str:
    """Why the trial that confirmation runs name is the best, and not the best single value.

    Args:
        confirmation: With a leader at least.
        objective: The first one of the study.
        trials: All of the study.
    """
    first = confirmation.leaders[0]
    extreme = "highest" if objective.is_maximized else "lowest"
    text = (
        f"Trial {first.trial_number} is the best: its mean {objective.name} over "
        f"{len(first.values)} confirmation runs with new seeds is the {extreme} of "
        f"{len(confirmation.leaders)} configurations"
    )
    left = confirmation.n_runs - confirmation.n_ended
    so_far = f" so far ({left} of {confirmation.n_runs} runs have not ended)" if left else ""
    able = trials.where(trials.is_candidate)
    if not len(able):
        return f"{text}{so_far}."
    sign = -1.0 if objective.is_maximized else 1.0
    at = int((sign * able.values[:, 0]).argmin())
    number, value = int(able.numbers[at]), float(able.values[at, 0])
    if number == first.trial_number:
        return f"{text}{so_far}. It also has the {extreme} single value, {four_digits(value)}."
    return (
        f"{text}{so_far}; trial {number}, which the other pages show as the best, has the "
        f"{extreme} single value, {four_digits(value)}, which is biased because it was selected "
        f"among {len(able)} trials."
    )


def python_lines(shown_url: str, study: str) -> str:
    """Python lines that load the best configuration; the URL is without its password."""
    return (
        "import tuner\n\n"
        f"best = tuner.load_best({shown_url!r}, study={study!r})\n"
        "best.params, best.value, best.trial_number, best.seed"
    )
