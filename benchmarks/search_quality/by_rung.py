"""TPE that is fed with the values of one rung, as BOHB feeds it. For comparison."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.bounded import _BoundedStudy

_RUNG = "completed_rung_"


class RungFedTPE(BaseSampler):
    """Optuna's TPE, shown the values at the highest rung that enough trials came to
    (Falkner, Klein and Hutter, "BOHB", ICML 2018, section 3.2).

    Args:
        inner: The sampler.
        n_least: So many trials are enough.
        random_share: Of the trials so many are drawn at random, as in BOHB.
        seed: Of the draw who they are, and of their parameters.
    """

    def __init__(
        self, inner: TPESampler, *, n_least: int, random_share: float = 0.0, seed: int = 0
    ) -> None:
        self._inner = inner
        self._n_least = n_least
        self._random_share = random_share
        self._seed = seed
        self._random = RandomSampler(seed=seed)

    def shown(self, study: optuna.Study) -> list[FrozenTrial]:
        """Trials as if they had completed at that rung."""
        by_rung: dict[int, list[FrozenTrial]] = {}
        for trial in study._get_trials(deepcopy=False):
            for key, value in trial.system_attrs.items():
                if key.startswith(_RUNG):
                    rung = int(key.removeprefix(_RUNG))
                    by_rung.setdefault(rung, []).append(_as_completed(trial, value))
        enough = [rung for rung, trials in by_rung.items() if len(trials) >= self._n_least]
        return by_rung[max(enough)] if enough else by_rung.get(0, [])

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        if np.random.default_rng((self._seed, trial.number)).random() < self._random_share:
            return self._random.sample_independent(study, trial, param_name, param_distribution)
        fed = cast(optuna.Study, _BoundedStudy(study, self.shown(study), is_whole=False))
        return self._inner.sample_independent(fed, trial, param_name, param_distribution)


def _as_completed(trial: FrozenTrial, value: float | list[float]) -> FrozenTrial:
    completed = copy.copy(trial)
    completed.state = TrialState.COMPLETE
    completed.values = value if isinstance(value, list) else [value]
    return completed
