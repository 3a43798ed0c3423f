"""Searches of two objectives: Optuna's, and the tuner's own study with its rungs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler

from benchmarks.search_quality.by_rung import RungFedTPE
from benchmarks.search_quality.loop import Next, Search, Verdict
from benchmarks.search_quality.systems import AUTO, N_LEAST, RANDOM, TPE, asha_of_ours, study_of
from benchmarks.search_quality.two_tasks import CostTask, Pair
from tuner.config import Direction, StudyConfig
from tuner.domain.messages import Action
from tuner.search.defaults import pruner_of, sampler_of
from tuner.search.study import StudySearch
from tuner.search.study_identity import to_optuna
from tuner.search_spaces import SearchSpace
from tuner.store.connection.database import open_database

MakeSearch = Callable[[CostTask, int], Search[Pair]]
"""From a task and a seed."""

OBJECTIVES = {"accuracy": Direction.MAXIMIZE, "cost": Direction.MINIMIZE}


class OptunaSearch:
    """A sampler of Optuna alone: its pruners know one objective.

    Args:
        space: What is searched.
        sampler: Chooses configurations.
    """

    def __init__(self, space: SearchSpace, sampler: BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        directions = [to_optuna(each) for each in OBJECTIVES.values()]
        self._study = optuna.create_study(directions=directions, sampler=sampler)
        self._trials: dict[int, optuna.Trial] = {}

    def next(self) -> Next:
        trial = self._study.ask()
        self._trials[trial.number] = trial
        return Next(trial=trial.number, params=self._space.suggest(trial))

    def report(self, trial: int, step: int, value: Pair, *, held_s: float) -> Verdict:
        return Verdict.GO_ON

    def complete(self, trial: int, step: int, value: Pair) -> None:
        self._study.tell(self._trials[trial], value)


class TunerSearch:
    """The study as the dispatcher has it; of its database nobody reads more than the start.

    Args:
        config: Of the study.
        sampler: Its sampler.
    """

    def __init__(self, config: StudyConfig, sampler: BaseSampler) -> None:
        self._folder = TemporaryDirectory(prefix="search-quality-")
        storage = open_database(f"sqlite:///{self._folder.name}/study.db").storage
        storage.stay_in_memory()
        self._search = StudySearch(
            storage,
            config.study,
            objectives=config.objectives,
            space=config.search_space,
            sampler=sampler,
            pruner=pruner_of(config),
        )
        self.study = self._search.study
        self._ids: dict[int, int] = {}

    def next(self) -> Next:
        asked = self._search.resume() or self._search.ask()
        assert asked is not None, "nobody else works on the study"
        self._ids[asked.number] = asked.trial_id
        return Next(trial=asked.number, params=asked.params)

    def report(self, trial: int, step: int, value: Pair, *, held_s: float) -> Verdict:
        trial_id = self._ids[trial]
        decision = self._search.report(trial_id, step, _named(value), held_s=held_s)
        if decision.action is Action.PAUSE:
            self._search.pause(trial_id)
            return Verdict.PAUSE
        if decision.action is Action.PRUNE:
            self._search.prune(trial_id)
            return Verdict.STOP
        return Verdict.GO_ON

    def complete(self, trial: int, step: int, value: Pair) -> None:
        self._search.report(self._ids[trial], step, _named(value))
        self._search.complete(self._ids[trial], _named(value))


def _named(value: Pair) -> dict[str, float]:
    return dict(zip(OBJECTIVES, value, strict=True))


@dataclass(frozen=True, kw_only=True)
class Ours:
    """A sampler and a pruner as a study file has them; None for what the platform picks."""

    sampler: Mapping[str, Any] | None = None
    pruner: Mapping[str, Any] | None = None
    #: Where TPE is shown the values of one rung: the share of trials that are drawn at random.
    by_rung: float | None = None

    def __call__(self, task: CostTask, seed: int) -> Search[Pair]:
        objectives = {name: each.value for name, each in OBJECTIVES.items()}
        parts = {"sampler": self.sampler, "pruner": self.pruner, "objectives": objectives}
        config = study_of(task.space, parts, seed)
        sampler = sampler_of(config, seed=seed)
        if self.by_rung is not None:
            tpe = TPESampler(seed=seed)
            sampler = RungFedTPE(tpe, n_least=N_LEAST, random_share=self.by_rung, seed=seed)
        return TunerSearch(config, sampler)


def _optuna(sampler: Callable[..., BaseSampler], task: CostTask, seed: int) -> Search[Pair]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return OptunaSearch(task.space, sampler(seed=seed))


_RANDOM, _TPE, _NONE = {"name": "random"}, {"name": "tpe"}, {"name": "none"}
_CURVE_GP = {"name": "curve_gp"}
PEERS: Mapping[str, MakeSearch] = {
    RANDOM: functools.partial(_optuna, RandomSampler),
    TPE: functools.partial(_optuna, TPESampler),
    # A population of 50, its default, is more than are trained here: that is random search.
    "Optuna, NSGA-II of 10": functools.partial(
        _optuna, functools.partial(NSGAIISampler, population_size=10)
    ),
}
OURS: Mapping[str, MakeSearch] = {
    AUTO: Ours(),
    "tpe, none": Ours(sampler=_TPE, pruner=_NONE),
    "curve_gp + ASHA from 1, promote": Ours(sampler=_CURVE_GP, pruner=asha_of_ours(1, "promote")),
    "curve_gp + ASHA from 2, promote": Ours(sampler=_CURVE_GP, pruner=asha_of_ours(2, "promote")),
    "curve_gp + ASHA from 2": Ours(sampler=_CURVE_GP, pruner=asha_of_ours(2)),
    "curve_gp, nothing random + ASHA from 1, promote": Ours(
        sampler={**_CURVE_GP, "random_share": 0.0}, pruner=asha_of_ours(1, "promote")
    ),
    "curve_gp, weighted + ASHA from 1, promote": Ours(
        sampler={**_CURVE_GP, "scalarizes": True}, pruner=asha_of_ours(1, "promote")
    ),
    "curve_gp, none": Ours(sampler=_CURVE_GP, pruner=_NONE),
    "tpe + ASHA from 1, promote": Ours(sampler=_TPE, pruner=asha_of_ours(1, "promote")),
    "random + ASHA from 2": Ours(sampler=_RANDOM, pruner=asha_of_ours(2)),
    "random + ASHA from 1": Ours(sampler=_RANDOM, pruner=asha_of_ours(1)),
    "random + ASHA from 2, promote": Ours(sampler=_RANDOM, pruner=asha_of_ours(2, "promote")),
    "random + ASHA from 1, promote": Ours(sampler=_RANDOM, pruner=asha_of_ours(1, "promote")),
    "tpe + ASHA from 2": Ours(sampler=_TPE, pruner=asha_of_ours(2)),
    "tpe + ASHA from 2, promote": Ours(sampler=_TPE, pruner=asha_of_ours(2, "promote")),
    "nsgaii of 10 + ASHA from 1, promote": Ours(
        sampler={"name": "nsgaii", "population_size": 10}, pruner=asha_of_ours(1, "promote")
    ),
    "tpe by rung + ASHA from 2": Ours(pruner=asha_of_ours(2), by_rung=0.0),
    "tpe by rung + ASHA from 2, promote": Ours(pruner=asha_of_ours(2, "promote"), by_rung=0.0),
    "tpe by rung, 1/3 random + ASHA from 1, promote": Ours(
        pruner=asha_of_ours(1, "promote"), by_rung=1 / 3
    ),
}
SYSTEMS: Mapping[str, MakeSearch] = {**PEERS, **OURS}


def seeded(name: str, task: CostTask, seed: int) -> Search[Pair]:
    """A search by its name; the same seed means the same draws wherever it can."""
    np.random.seed(seed)
    return SYSTEMS[name](task, seed)
