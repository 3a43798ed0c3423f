"""Samplers and storages that note which trials they are shown."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.history_views import (
    Shown,
    history_for_tpe,
)
from tuner.search_spaces import parse_space

SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
        "depth": {"type": "int", "low": 1, "high": 8},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
    }
)


DISTRIBUTIONS = {each.name: each.distribution for each in SPACE.parameters}
STATES = (TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class CountingStorage(InMemoryStorage):
    """Counts how often each of its methods was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self.calls["get_trial"] += 1
        return super().get_trial(trial_id)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        self.calls["get_all_trials"] += 1
        return super().get_all_trials(study_id, deepcopy, states)


class Showing(BaseSampler):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.seen: list[FrozenTrial] = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        self.seen = study._get_trials(deepcopy=False)
        self.numbers = [each.number for each in self.seen]
        self.n_of_study = len(study.get_trials(deepcopy=False))
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        return distribution.to_external_repr(0.5)


def a_study(
    sampler: BaseSampler | None = None,
    directions: Sequence[str] = ("minimize",),
    storage: InMemoryStorage | None = None,
) -> optuna.Study:
    return optuna.create_study(sampler=sampler, directions=directions, storage=storage)


def a_trial(
    drawn: random.Random,
    *,
    state: TrialState = TrialState.COMPLETE,
    values: Sequence[float] | None = None,
    violation: float | None = None,
) -> FrozenTrial:
    params = {"lr": 10 ** drawn.uniform(-5, -1), "depth": drawn.randint(1, 8)}
    params["optimizer"] = drawn.choice(["sgd", "adamw"])  # type: ignore[assignment]
    if params["optimizer"] == "sgd":
        params["momentum"] = drawn.uniform(0, 0.99)
    steps = range(1, drawn.randint(2, 5)) if values is None or len(values) == 1 else ()
    return create_trial(
        state=state,
        values=None if state is TrialState.FAIL else values or [drawn.random()],
        params=params,
        distributions={name: DISTRIBUTIONS[name] for name in params},
        intermediate_values={step: drawn.random() for step in steps},
        constraints={} if violation is None else {"memory": violation},
    )


def finished(
    n_trials: int, *, seed: int = 0, states: Sequence[TrialState] = STATES
) -> list[FrozenTrial]:
    drawn = random.Random(seed)
    return [a_trial(drawn, state=drawn.choice(states)) for _ in range(n_trials)]


def showing(limit: int = 60, **arguments: Any) -> tuple[Showing, BoundedSampler]:
    """A sampler that is shown what TPE is."""
    inner = Showing()
    tpe = optuna.samplers.TPESampler(**arguments)
    return inner, BoundedSampler(inner, partial(history_for_tpe, tpe, 0, limit=limit))


def shown_of(study: optuna.Study, choose: Callable[[optuna.Study], Shown]) -> list[FrozenTrial]:
    shown = choose(study)
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            shown.add(trial)
    return sorted(shown, key=lambda each: each.number)


def shown_to_default_tpe(study: optuna.Study, limit: int = 60) -> list[FrozenTrial]:
    return shown_of(study, partial(history_for_tpe, optuna.samplers.TPESampler(), 0, limit=limit))


def look(sampler: BaseSampler, study: optuna.Study) -> None:
    sampler.infer_relative_search_space(study, study.get_trials(deepcopy=False)[-1])


# -- the same suggestions ----------------------------------------------------------------------
def suggested(sampler: BaseSampler, n_trials: int, directions: Sequence[str] = ("minimize",)):
    """What it suggests while four trials run at once and end in all ways."""
    study = a_study(sampler, directions)
    drawn = random.Random(7)
    running: list[optuna.Trial] = []
    for _ in range(n_trials):
        trial = study.ask()
        SPACE.suggest(trial)
        running.append(trial)
        if len(running) > 4:
            end(study, running.pop(drawn.randrange(4)), drawn, len(directions))
    return [trial.params for trial in study.trials]


def end(study: optuna.Study, trial: optuna.Trial, drawn: random.Random, n_values: int) -> None:
    state = drawn.choice(STATES)
    if n_values == 1:
        trial.report(drawn.random(), 1)
    values = [trial.params["lr"] * drawn.random() for _ in range(n_values)]
    study.tell(trial, values if state is TrialState.COMPLETE else None, state)
