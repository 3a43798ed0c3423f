"""Space-filling initial configurations.

The single definition of this rule. `auto` uses it in place of all random draws.
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
    """Trial n is point n of a scrambled Sobol sequence.

    Trial numbers are unique in a study, so dispatchers that share it, and later starts, continue
    the sequence and repeat no point. Each declared parameter has a dimension of its own, including
    conditional ones, whose values cover their range in the trials that have them. A range with
    `log` is covered on the log scale, choices appear equally often. A parameter that only the
    program knows has the dimension of its place among those that its trial has suggested.

    Args:
        space: The study's space; None if the program declares its parameters as it runs.
        seed: The same for all starts and dispatchers of the study.
    """

    def __init__(self, space: AnySpace | None, *, seed: int) -> None:
        parameters = space.parameters if isinstance(space, SearchSpace) else ()
        self._dimensions = {each.name: place for place, each in enumerate(parameters)}
        self._seed = seed

    def reseed_rng(self) -> None:
        """Nothing is drawn: what a trial gets depends on its number."""

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
            n_before = len(trial.params.keys() - self._dimensions.keys())
            dimension = len(self._dimensions) + n_before
        place = coordinate(trial.number, dimension, seed=self._seed)
        return value_at(place, param_distribution)


def value_at(place: float, distribution: BaseDistribution) -> Any:
    """The value of a parameter at a position in its range.

    Args:
        place: From 0 to 1, on the log scale if the range has one.
        distribution: The parameter's distribution.
    """
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(place * len(distribution.choices))]
    transform = SearchSpaceTransform({"x": distribution}, transform_0_1=True)
    return transform.untransform(np.array([place]))["x"]


def cover_beginning(sampler: BaseSampler, space: AnySpace | None, *, seed: int) -> BaseSampler:
    """Makes a sampler cover the space in place of its random draws.

    Args:
        sampler: From `build_sampler`; samplers that `auto` never picks are returned unchanged.
        space: The study's space.
        seed: Seed of the points, the same at every start of the study.
    """
    inner = sampler.inner if isinstance(sampler, BoundedSampler) else sampler
    covering = CoveringSampler(space, seed=seed)
    if isinstance(inner, CurveGPSampler) and inner.covers:
        inner.independent = covering
    elif isinstance(inner, TPESampler):
        replace_random_sampler_of(inner, covering)
    elif isinstance(inner, RandomSampler):
        return covering
    return sampler
