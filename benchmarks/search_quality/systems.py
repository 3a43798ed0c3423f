"""The tuners that are compared: ours, Optuna's, and the ASHA of Ray Tune and of Syne Tune."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from benchmarks.search_quality.by_rung import RungFedTPE
from benchmarks.search_quality.checked_rungs import CheckedRungs
from benchmarks.search_quality.known_brackets import KnownBrackets
from benchmarks.search_quality.loop import Next, Search, Verdict, play
from benchmarks.search_quality.tasks import Task, read_task
from tuner.config import StudyConfig
from tuner.config.study import Source, validate_study
from tuner.search.defaults import pruner_of, sampler_of
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.rungs.brackets import Brackets
from tuner.search.rungs.freeze_thaw_table import SliceTable
from tuner.search.rungs.order.stored_trust import TRUST_KEY, TrustJson
from tuner.search.rungs.step_time import Pace
from tuner.search.rungs.table import RungTable
from tuner.search.samplers import tpe_speedup
from tuner.search.samplers.transfer import N_TRANSFERRED
from tuner.search_spaces import ParamValue, SearchSpace

_Promoting: TypeAlias = AshaPruner | AsyncHyperbandPruner | FreezeThawPruner
MakeSearch = Callable[[Task, int], Search[float]]
"""From a task and a seed."""

_REDUCTION = 3
#: Twice the parameters of the tasks.
N_LEAST = 14


class _Study(optuna.Study):
    """One in which trials wait that are paused, and nobody else."""

    def _pop_waiting_trial_id(self) -> int | None:
        return None


class OptunaSearch:
    """A sampler and a pruner of Optuna's interface, on a study in memory.

    Args:
        space: What is searched.
        sampler: Chooses configurations.
        pruner: Stops trials.
        name: Of the study, by which Optuna's Hyperband draws brackets; else another one each time.
    """

    def __init__(
        self,
        space: SearchSpace,
        sampler: BaseSampler,
        pruner: BasePruner,
        *,
        name: str | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # The same draws to the last bit: Optuna's own TPE is played in a third of the time.
        tpe_speedup.use_in_optuna()
        self._space = space
        made = optuna.create_study(
            study_name=name, direction="maximize", sampler=sampler, pruner=pruner
        )
        self.study = _Study(made.study_name, made._storage, sampler=sampler, pruner=pruner)
        self._trials: dict[int, optuna.Trial] = {}
        self._paused = _Paused(pruner, self._trial) if _promotes(pruner) else None
        self._checked: CheckedRungs | None = None
        if isinstance(pruner, AshaPruner) and pruner.checks_order:
            self._checked = CheckedRungs(pruner, self._note_trust)

    def next(self) -> Next:
        if self._paused is not None and (number := self._paused.promote()) is not None:
            self._move(number, TrialState.RUNNING)
            return Next(trial=number, params={})
        trial = self.study.ask()
        self._trials[trial.number] = trial
        return Next(trial=trial.number, params=self._space.suggest(trial))

    def report(self, trial: int, step: int, value: float, *, held_s: float) -> Verdict:
        live = self._trials[trial]
        live.report(value, step)
        if self._paused is not None:
            verdict = self._paused.judge(trial, step, value, held_s)
            if verdict is Verdict.PAUSE:
                self._move(trial, TrialState.WAITING)
            return verdict
        if self._is_weak(trial, step, value, held_s):
            self.study.tell(live, state=TrialState.PRUNED)
            return Verdict.STOP
        return Verdict.GO_ON

    def _is_weak(self, trial: int, step: int, value: float, held_s: float) -> bool:
        if self._checked is None:
            return self._trials[trial].should_prune()
        return self._checked.is_weak(trial, step, value, held_s=held_s, n_begun=len(self._trials))

    def complete(self, trial: int, step: int, value: float) -> None:
        self._trials[trial].report(value, step)
        if self._checked is not None:
            self._checked.complete(trial, value)
        self.study.tell(self._trials[trial], value)
        if self._paused is not None:
            self._paused.complete(trial, step, value)

    def _note_trust(self, number: int, trust: TrustJson) -> None:
        trial_id = self._trials[number]._trial_id
        stored: dict[str, Any] = {**trust}
        self.study._storage.set_trial_system_attr(trial_id, TRUST_KEY, stored)

    def _move(self, number: int, state: TrialState) -> None:
        # As in the tables of a study: who is paused is none of those that run.
        self.study._storage.set_trial_state_values(self._trials[number]._trial_id, state)

    def _trial(self, number: int) -> FrozenTrial:
        return self.study._storage.get_trial(self._trials[number]._trial_id)


def _promotes(pruner: BasePruner) -> bool:
    return isinstance(pruner, _Promoting) and pruner.promotes


class _Paused:
    """A pruner that promotes, as `tuner/search/rungs/promotion.py` has it, without a database."""

    def __init__(self, pruner: BasePruner, trial_of: Callable[[int], FrozenTrial]) -> None:
        assert isinstance(pruner, _Promoting)
        self._pruner = pruner
        self._trial_of = trial_of
        self._pace = Pace()
        self.brackets = Brackets(self._new_table)
        self.brackets.length = pruner.max_resource

    def promote(self) -> int | None:
        number = self.brackets.promotable()
        if number is not None:
            self.brackets.unpause(number)
            self._pace.begins(number)
        return number

    def complete(self, trial: int, step: int, value: float) -> None:
        self.brackets.length = step
        table = self.brackets.table_of(trial)
        if isinstance(table, SliceTable):
            table.completes(trial, step, -value)

    def judge(self, trial: int, step: int, value: float, held_s: float) -> Verdict:
        known = self._trial_of(trial).intermediate_values
        self._pace.reported(trial, step, held_s, known=known)
        if trial not in self.brackets:
            self.brackets.put(trial, self._pruner.first_rung(trial, self.brackets.length))
        table = self.brackets.table_of(trial)
        rung = -1 if table is None else table.rung_at(step)
        if table is None or rung < 0 or not table.come(trial, rung, -value) or table.is_end(rung):
            return Verdict.GO_ON
        if (measured := self._pace.measured(trial)) is not None:
            self._pace.take_in(trial, measured)
        if table.standing(trial, rung).goes_on:
            return Verdict.GO_ON
        self.brackets.pause(trial)
        return Verdict.PAUSE

    def _new_table(self, first: int) -> RungTable:
        table = self._pruner.new_table(first)
        if isinstance(table, SliceTable):
            table.trial_of, table.pace = self._trial_of, self._pace
        return table


class RaySearch:
    """Ray Tune's ASHA, asked without a cluster; configurations are drawn at random.

    Args:
        task: What is searched.
        seed: Of the configurations.
    """

    def __init__(self, task: Task, seed: int) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler

        self._drawn = _Drawn(task.space, seed)
        self._scheduler: Any = AsyncHyperBandScheduler(
            time_attr="training_iteration",
            metric="value",
            mode="max",
            max_t=task.table.values.shape[1],
            grace_period=1,
            reduction_factor=_REDUCTION,
        )
        self._trials: list[Any] = []

    def next(self) -> Next:
        number = len(self._trials)
        self._trials.append(SimpleNamespace(trial_id=str(number)))
        self._scheduler.on_trial_add(None, self._trials[-1])
        return Next(trial=number, params=self._drawn.draw())

    def report(self, trial: int, step: int, value: float, *, held_s: float) -> Verdict:
        result = {"training_iteration": step, "value": value}
        said = self._scheduler.on_trial_result(None, self._trials[trial], result)
        return Verdict.GO_ON if said == "CONTINUE" else Verdict.STOP

    def complete(self, trial: int, step: int, value: float) -> None:
        result = {"training_iteration": step, "value": value}
        self._scheduler.on_trial_complete(None, self._trials[trial], result)


class SyneTuneSearch:
    """Syne Tune's ASHA, asked without a backend; configurations are drawn at random.

    Args:
        task: What is searched.
        seed: Of the configurations, which are drawn here and not by Syne Tune.
    """

    def __init__(self, task: Task, seed: int) -> None:
        from syne_tune.config_space import uniform
        from syne_tune.optimizer.baselines import ASHA

        self._drawn = _Drawn(task.space, seed)
        self._scheduler: Any = ASHA(
            {"unused": uniform(0.0, 1.0)},
            metric="value",
            do_minimize=False,
            time_attr="epoch",
            max_t=task.table.values.shape[1],
            grace_period=1,
            reduction_factor=_REDUCTION,
            random_seed=seed,
        )
        self._trials: list[Any] = []

    def next(self) -> Next:
        number = len(self._trials)
        self._trials.append(SimpleNamespace(trial_id=number, config={}))
        self._scheduler.on_trial_add(self._trials[-1])
        return Next(trial=number, params=self._drawn.draw())

    def report(self, trial: int, step: int, value: float, *, held_s: float) -> Verdict:
        said = self._scheduler.on_trial_result(self._trials[trial], {"epoch": step, "value": value})
        return Verdict.GO_ON if said == "CONTINUE" else Verdict.STOP

    def complete(self, trial: int, step: int, value: float) -> None:
        self._scheduler.on_trial_complete(self._trials[trial], {"epoch": step, "value": value})


class _Drawn:
    """Configurations at random, as Optuna draws them."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._study = optuna.create_study(sampler=RandomSampler(seed=seed))

    def draw(self) -> Mapping[str, ParamValue]:
        return self._space.suggest(self._study.ask())


def _optuna(
    sampler: Callable[..., BaseSampler], pruner: Callable[[int], BasePruner], task: Task, seed: int
) -> Search[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        n_steps = task.table.values.shape[1]
        return OptunaSearch(task.space, sampler(seed=seed), pruner(n_steps), name=f"seed {seed}")


def _tpe_by_rung(seed: int) -> BaseSampler:
    return RungFedTPE(TPESampler(seed=seed), n_least=N_LEAST)


def _none(_: int) -> BasePruner:
    return NopPruner()


def _asha(first: int) -> Callable[[int], BasePruner]:
    return lambda _: SuccessiveHalvingPruner(min_resource=first, reduction_factor=_REDUCTION)


def _hyperband(n_steps: int) -> BasePruner:
    return KnownBrackets(min_resource=1, max_resource=n_steps, reduction_factor=_REDUCTION)


def study_of(
    space: SearchSpace | None, parts: Mapping[str, Mapping[str, Any] | None], seed: int
) -> StudyConfig:
    """A study file of these parts, read; those that are None are left out.

    Args:
        space: What is searched; None if only the program knows.
        parts: Its objectives, sampler and the like.
        seed: Of the sampler.
    """
    study = {
        "study": "curves",
        "trial": {"function": "train:train"},
        "search_space": "train:space" if space is None else space.to_mapping(),
        **{key: part for key, part in parts.items() if part is not None},
    }
    source = Source(path=Path("/"), file="study.yaml", text="")
    config = validate_study(study, source=source, environ={}, origins={})
    return config.model_copy(update={"sampler": config.sampler.model_copy(update={"seed": seed})})


@dataclass(frozen=True, kw_only=True)
class Ours:
    """A sampler and a pruner as a study file has them; None for what the platform picks."""

    sampler: Mapping[str, Any] | None = None
    pruner: Mapping[str, Any] | None = None
    #: Makes an expert's guess for a task.
    prior: Callable[[Task], Mapping[str, Any]] | None = None
    #: Gives what an earlier study with the same seed found, on another task.
    transfer: Callable[[Task, int], Sequence[Mapping[str, ParamValue]]] | None = None
    #: Whether the study file has the space; else the program suggests each parameter.
    has_space: bool = True

    def __call__(self, task: Task, seed: int) -> Search[float]:
        parts = {"sampler": self.sampler, "pruner": self.pruner}
        if self.prior is not None:
            parts["prior"] = self.prior(task)
        space = task.space if self.has_space else None
        config = study_of(space, {"objectives": {"accuracy": "maximize"}, **parts}, seed)
        transferred = self.transfer(task, seed) if self.transfer is not None else ()
        sampler = sampler_of(config, seed=seed, transferred=transferred)
        return OptunaSearch(task.space, sampler, pruner_of(config))


def asha_of_ours(first: int, mode: str = "stop", *, one_in: int = _REDUCTION) -> dict[str, Any]:
    return {"name": "asha", "mode": mode, "min_resource": first, "reduction_factor": one_in}


def _guess(task: Task, place: float) -> dict[str, Any]:
    """A configuration of the table, by how it ends: 0 is the worst, 1 the best."""
    order = np.argsort(np.nan_to_num(task.table.values[:, -1], nan=-np.inf))
    return task.table.params(int(order[round(place * (len(order) - 1))]))


def right_prior(task: Task) -> dict[str, Any]:
    """One of the best 2 %, as somebody has it who knows the program from a similar task."""
    return _guess(task, 0.98)


def wrong_prior(task: Task) -> dict[str, Any]:
    """One of the worst 10 %."""
    return _guess(task, 0.10)


#: Where earlier studies were made, of four workers and as long as those that are compared.
EARLIER_TASK, _EARLIER_WORKERS, _EARLIER_S = "34539", 4, 5.0


def right_transfer(task: Task, seed: int) -> Sequence[Mapping[str, ParamValue]]:
    """The best configurations that an earlier study completed, on another task."""
    _, study = _earlier(task, seed)
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    best_first = sorted(completed, key=lambda trial: -trial.values[0])
    return [each.params for each in best_first[:N_TRANSFERRED]]


def wrong_transfer(task: Task, seed: int) -> Sequence[Mapping[str, ParamValue]]:
    """The worst that it tried, by how they end: as if its objective had been turned round."""
    earlier, study = _earlier(task, seed)
    tried = [each.params for each in study.get_trials(deepcopy=False)]
    tried.sort(key=lambda params: float(np.nan_to_num(earlier.table.curve(params).values[-1])))
    return tried[:N_TRANSFERRED]


def _earlier(task: Task, seed: int) -> tuple[Task, optuna.Study]:
    """A study of random search with ASHA that was over before, as long as those that follow."""
    earlier = read_task(task.path.with_name(f"lcbench_{EARLIER_TASK}.npz"))
    # Its draws are others than those of the study that is compared.
    search = Ours(sampler={"name": "random"}, pruner=asha_of_ours(2))(earlier, 1000 + seed)
    assert isinstance(search, OptunaSearch)
    play(search, earlier, n_workers=_EARLIER_WORKERS, restart_s=_EARLIER_S, n_medians=10.0)
    return earlier, search.study


AUTO, RANDOM, TPE = "tuner, auto", "random", "Optuna, TPE"
PEERS: Mapping[str, MakeSearch] = {
    RANDOM: functools.partial(_optuna, RandomSampler, _none),
    "Optuna, random + ASHA": functools.partial(_optuna, RandomSampler, _asha(1)),
    TPE: functools.partial(_optuna, TPESampler, _none),
    "Optuna, TPE + ASHA": functools.partial(_optuna, TPESampler, _asha(1)),
    "Optuna, TPE + ASHA from 3": functools.partial(_optuna, TPESampler, _asha(3)),
    "Optuna, TPE + Hyperband": functools.partial(_optuna, TPESampler, _hyperband),
    "Ray Tune, random + ASHA": RaySearch,
    "Syne Tune, random + ASHA": SyneTuneSearch,
}
OURS: Mapping[str, MakeSearch] = {
    AUTO: Ours(),
    "auto, space of the program": Ours(has_space=False),
    "curve_gp + ASHA from 2": Ours(pruner=asha_of_ours(2)),
    "curve_gp + checked ASHA": Ours(sampler={"name": "curve_gp"}),
    "TPE + checked ASHA": Ours(sampler={"name": "tpe"}),
    "random + checked ASHA": Ours(
        sampler={"name": "random"}, pruner={**asha_of_ours(2), "check_order": True}
    ),
    "random + ASHA from 2": Ours(sampler={"name": "random"}, pruner=asha_of_ours(2)),
    "TPE by rung + ASHA": functools.partial(_optuna, _tpe_by_rung, _asha(1)),
    "curve_gp alone": Ours(pruner={"name": "none"}),
    "curve_gp + ASHA from 1": Ours(pruner=asha_of_ours(1)),
    "curve_gp + ASHA from 3": Ours(pruner=asha_of_ours(3)),
    "curve_gp + ASHA, one in 2": Ours(pruner=asha_of_ours(2, one_in=2)),
    "curve_gp + ASHA, one in 4": Ours(pruner=asha_of_ours(2, one_in=4)),
    "curve_gp, none at random": Ours(sampler={"name": "curve_gp", "random_share": 0.0}),
    "auto, beginning at random": Ours(sampler={"name": "curve_gp", "covers": False}),
    "random + ASHA, promote": Ours(sampler={"name": "random"}, pruner=asha_of_ours(1, "promote")),
    "random + Hyperband, promote": Ours(sampler={"name": "random"}, pruner={"name": "hyperband"}),
    "random + freeze-thaw": Ours(sampler={"name": "random"}, pruner={"name": "freeze_thaw"}),
    "curve_gp + freeze-thaw": Ours(pruner={"name": "freeze_thaw"}),
    "curve_gp + ASHA, promote": Ours(pruner=asha_of_ours(2, "promote")),
}
#: What an expert's guess is worth, right or wrong.
GUESSES: Mapping[str, MakeSearch] = {
    f"{sampler}, {kind} prior": Ours(sampler={"name": sampler}, pruner=asha_of_ours(2), prior=prior)
    for sampler in ("curve_gp", "tpe", "random")
    for kind, prior in (("no", None), ("right", right_prior), ("wrong", wrong_prior))
}
#: What it is worth to begin where an earlier study found its best.
TRANSFERS: Mapping[str, MakeSearch] = {
    f"{sampler}, {kind} transfer": Ours(
        sampler={"name": sampler}, pruner=asha_of_ours(2), transfer=transfer
    )
    for sampler in ("curve_gp", "tpe", "random")
    for kind, transfer in (("no", None), ("right", right_transfer), ("wrong", wrong_transfer))
}
SYSTEMS: Mapping[str, MakeSearch] = {**PEERS, **OURS, **GUESSES, **TRANSFERS}


def seeded(name: str, task: Task, seed: int) -> Search[float]:
    """A search by its name; the same seed means the same draws wherever it can."""
    np.random.seed(seed)
    return SYSTEMS[name](task, seed)
