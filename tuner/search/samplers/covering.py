"""The beginning of a study: configurations that cover the space while nothing is known of it.

The one place of that rule. What `auto` picks draws so what it would else draw at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.sobol import coordinate
from tuner.search_spaces import AnySpace, SearchSpace
from tuner.store.optuna_compat import SearchSpaceTransform, replace_random_sampler_of


class CoveringSampler(BaseSampler):
    """Trial n is the point n of a scrambled Sobol sequence.

    A trial's number belongs to one trial of the study, so that dispatchers that share it, and later
    starts, go on with the sequence and repeat none of its points. Each declared parameter has a
    dimension of its own, also one with conditions, whose values cover its range in those trials
    that have it. A range with `log` is covered by its logarithm, choices appear equally often.
    Parameters that are not declared are drawn at random.

    Args:
        space: The study's space; None if the program declares its parameters as it runs.
        seed: The same wherever the study goes on.
        draws: Seed of what is drawn at random.
    """

    def __init__(self, space: AnySpace | None, *, seed: int, draws: int) -> None:
        parameters = space.parameters if isinstance(space, SearchSpace) else ()
        self._dimensions = {each.name: place for place, each in enumerate(parameters)}
        self._seed = seed
        self._random = RandomSampler(seed=draws)

    def reseed_rng(self) -> None:
        self._random.reseed_rng()

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
        dimension = self._dimensions.get(param_name)
        if dimension is None:
            return self._random.sample_independent(study, trial, param_name, param_distribution)
        place = coordinate(trial.number, dimension, seed=self._seed)
        return value_at(place, param_distribution)


def value_at(place: float, distribution: BaseDistribution) -> Any:
    """The value of a parameter at a place of its range.

    Args:
        place: From 0 to 1, of the logarithm where the range has one.
        distribution: Of the parameter.
    """
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(place * len(distribution.choices))]
    transform = SearchSpaceTransform({"x": distribution}, transform_0_1=True)
    return transform.untransform(np.array([place]))["x"]


def cover_beginning(
    sampler: BaseSampler, space: AnySpace | None, *, seed: int, draws: int
) -> BaseSampler:
    """The sampler, which now covers the space where it would draw at random.

    Args:
        sampler: As `build_sampler` makes it; another one than those that `auto` picks stays as it
            is.
        space: The study's space.
        seed: Of the points: the same at every start of the study.
        draws: Seed of what is drawn at random.
    """
    inner = sampler.inner if isinstance(sampler, BoundedSampler) else sampler
    covering = CoveringSampler(space, seed=seed, draws=draws)
    if isinstance(inner, CurveGPSampler) and inner.covers:
        inner.independent = covering
    elif isinstance(inner, TPESampler):
        replace_random_sampler_of(inner, covering)
    elif isinstance(inner, RandomSampler):
        return covering
    return sampler
