"""The best configurations of a study, for users, for scripts and for Python.

python -m tuner.best study.yaml --top 5 --format args
tuner.load_best("sqlite:///digits.db").params
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import optuna
import sqlalchemy as sa
from optuna.trial import FrozenTrial, TrialState

from tuner.checkpoints.layout import newest_whole
from tuner.checkpoints.paths import checkpoints_in
from tuner.checkpoints.trial_folders import TrialKey, locate
from tuner.errors import StoreError
from tuner.queries.results.command_line import program_of_trial
from tuner.queries.results.confirmations import Confirmation, read_confirmation
from tuner.queries.uploads import fetch_checkpoint, read_uploads
from tuner.search.study_identity import all_params, key_of, load_space_of
from tuner.search_spaces import ParamValue
from tuner.store.connection.database import Database, open_database
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.statements import IDENTITY_ATTR, OBJECTIVES_ATTR
from tuner.store.records.queries import Origin, find_study, origin_of


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=_Numbered)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRuns:
    """The confirmation runs of one configuration, each with a fresh seed."""

    n_runs: int
    mean: float
    #: From run to run; None of a single one.
    deviation: float | None
    #: That its mean is the best of all that were run again: see `tuner.search.winner_confidence`.
    probability_best: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestConfiguration:
    """The configuration of a completed trial, with what is needed to reproduce it."""

    #: Name of the study.
    study: str
    #: Number of the trial.
    trial_number: int
    #: All parameters by name, including constants.
    params: Mapping[str, ParamValue]
    #: The values by name of the objective.
    values: Mapping[str, float]
    #: Seed of the attempt that returned the values; 0 if the trial was not run by the tuner.
    seed: int
    #: Git commit of the program, if it was in a repository.
    git_commit: str | None
    #: Whether files differed from that commit.
    git_is_dirty: bool | None
    #: Path of the newest complete checkpoint, a file, or a folder if it is sharded; without one on
    #: this machine, its address in the object store (`checkpoints.store`), or None.
    checkpoint: str | None = None
    #: The confirmation runs of this configuration, if the study has `confirm`: `n_runs`, `mean`,
    #: `deviation`, `probability_best`.
    confirmed: FreshRuns | None = None
    #: The line for a shell that runs the study's program with these parameters; None if the tuner
    #: has not run the study.
    command: str | None = None

    @property
    def value(self) -> float:
        """The value of the first objective."""
        return next(iter(self.values.values()))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Loads the newest undamaged checkpoint of the trial; None if there is none.

        It is fetched from the object store if it is not on this machine. Tensors are on the CPU.
        Only tensors and plain values are unpickled. Imports torch.
        """
        if self.checkpoint is None:
            return None
        from tuner.trials.checkpoints import CheckpointFolder

        path = Path(self.checkpoint)
        if "://" in self.checkpoint:
            path = fetch_checkpoint(self.checkpoint, os.environ)
        return CheckpointFolder(path.parent).load()


def load_best(storage: str, study: str | None = None) -> BestConfiguration:
    """Loads the best configuration of a study.

    Args:
        storage: URL of the database, such as `sqlite:///digits.db`.
        study: Name of the study; the default is the only study of the database.

    Raises:
        StoreError: If the database or the study does not exist, or no trial has completed.
    """
    return load_top(storage, study, n=1)[0]


def load_top(storage: str, study: str | None = None, *, n: int) -> list[BestConfiguration]:
    """Loads the best configurations of a study, the best first.

    With several objectives these are the Pareto front, ordered by the first objective.
    Configurations with confirmation runs (`confirm`) come first, ordered by the mean of these runs,
    because the single value of a selected trial is optimistic.

    Args:
        storage: URL of the database.
        study: Name of the study; the default is the only study of the database.
        n: Maximum number of configurations.

    Raises:
        StoreError: If the database or the study does not exist, or no trial has completed.
    """
    database = open_database(storage, read_only=True)
    try:
        study_id, name = find_study(database, study)
        fresh = _fresh_runs(database, name)
        trials = confirmed_first(_ranked(optuna.Study(name, database.storage)), fresh)[:n]
        if not trials:
            raise StoreError(_why_none(optuna.Study(name, database.storage)))
        return [
            _configuration(database, study_id, name, trial, fresh.get(trial.number))
            for trial in trials
        ]
    finally:
        database.close()


def _ranked(study: optuna.Study) -> list[FrozenTrial]:
    if len(study.directions) > 1:
        candidates = study.best_trials
    else:
        candidates = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    feasible = [
        t
        for t in candidates
        if all(v <= 0 for v in t.constraints.values()) and all(map(math.isfinite, t.values))
    ]
    is_maximized = study.directions[0] is optuna.study.StudyDirection.MAXIMIZE
    return sorted(feasible, key=lambda trial: trial.values[0], reverse=is_maximized)


def _why_none(study: optuna.Study) -> str:
    n = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    if not n:
        return f"No trial of study {study.study_name!r} has completed yet."
    return (
        f"Study {study.study_name!r} has no best trial: {n} completed, each with an infinite value "
        "or a violated constraint."
    )


def command_of(
    connection: sa.Connection,
    trial_id: int,
    number: int,
    params: Mapping[str, ParamValue],
    seed: int,
) -> str | None:
    """The line for a shell that runs a trial's program with its parameters; None if unknown.

    Args:
        connection: Of the study's database.
        trial_id: Optuna's id of the trial.
        number: Of the trial.
        params: All of the trial, constants included.
        seed: Of the attempt that completed.
    """
    builtins: dict[str, ParamValue] = {
        "trial_number": number,
        "attempt_number": 1,
        "seed": seed,
        "checkpoint_dir": f"checkpoints-of-trial-{number}",
        "gpus": 1,
    }
    program = program_of_trial(connection, trial_id)
    line = program.line(params, builtins) if program else None
    if program and line and program.has_folder:
        return f"mkdir -p {builtins['checkpoint_dir']} && {line}"
    return line


def _fresh_runs(database: Database, study: str) -> dict[int, FreshRuns]:
    with database.engine.connect() as connection:
        return fresh_runs_of(read_confirmation(connection, study))


def fresh_runs_of(confirmation: Confirmation | None) -> dict[int, FreshRuns]:
    """By number of the trial that was run again, the best mean first."""
    return {
        each.trial_number: FreshRuns(
            n_runs=len(each.values),
            mean=each.mean,
            deviation=each.deviation,
            probability_best=each.p_best,
        )
        for each in (confirmation.leaders if confirmation else ())
    }


def confirmed_first(trials: Iterable[T], fresh: Mapping[int, FreshRuns]) -> list[T]:
    """Sorts ranked trials: those with confirmation runs first, by their mean."""
    places = {number: place for place, number in enumerate(fresh)}
    return sorted(trials, key=lambda each: places.get(each.number, len(places)))


def _configuration(
    database: Database,
    study_id: int,
    name: str,
    trial: FrozenTrial,
    confirmed: FreshRuns | None,
) -> BestConfiguration:
    space = load_space_of(database.storage, study_id)
    stored = database.storage.get_study_user_attrs(study_id).get(OBJECTIVES_ATTR)
    objectives = stored or [f"value_{i}" if i else "value" for i in range(len(trial.values))]
    origin = origin_of(database, trial_id_of(trial))
    params, seed = all_params(trial, space), origin.seed if origin else 0
    with database.engine.connect() as connection:
        command = command_of(connection, trial_id_of(trial), trial.number, params, seed)
    return BestConfiguration(
        study=name,
        trial_number=trial.number,
        params=params,
        values=dict(zip(objectives, trial.values, strict=True)),
        seed=seed,
        git_commit=origin.git_commit if origin else None,
        git_is_dirty=origin.git_is_dirty if origin else None,
        checkpoint=_checkpoint(database, study_id, trial, origin),
        confirmed=confirmed,
        command=command,
    )


def _checkpoint(
    database: Database, study_id: int, trial: FrozenTrial, origin: Origin | None
) -> str | None:
    if origin is None:
        return None
    folder: Path | None = Path(origin.log_path).parent
    key = key_of(database.storage.get_study_user_attrs(study_id).get(IDENTITY_ATTR))
    if key is not None and folder is not None:
        own = TrialKey(
            study=key, number=trial.number, begun_at=origin.begun_at, params=trial.params
        )
        folder = locate(folder, own)
    found = None if folder is None else newest_whole(checkpoints_in(folder))
    return str(found) if found else _uploaded(database, trial_id_of(trial))


def _uploaded(database: Database, trial_id: int) -> str | None:
    with database.engine.connect() as connection:
        found = read_uploads(connection, trial_id)
    return found[0].uri if found else None
