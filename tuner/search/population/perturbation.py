"""Perturbs a copy's parameters: PBT's exploration step."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.search_spaces import Scalar, SearchSpace
from tuner.search_spaces.space import is_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Perturbs parameters (Jaderberg et al., arXiv:1711.09846, "perturb" and "resample").

    Args:
        resample: Probability that a parameter is drawn again.
        factor: Otherwise a number is multiplied or divided by this.
        keep: Names of parameters that are not changed.
    """

    resample: float
    factor: float
    keep: frozenset[str] = frozenset()

    def of_space(
        self, space: SearchSpace, parent: Mapping[str, Scalar], lot: random.Random
    ) -> dict[str, Scalar]:
        """Perturbs the parameters of a parent.

        Args:
            space: The space of the study file.
            parent: The parent's parameters.
            lot: Source of randomness.

        Returns:
            The searched parameters of a copy. A parameter that the parent lacks, because a
            condition did not hold there, is drawn from the space.
        """
        values: dict[str, Scalar] = {}
        for each in space.parameters:
            if each.applies({**space.constants, **values}):
                values[each.name] = self._explored(each.name, each.distribution, parent, lot)
        return values

    def of_distributions(
        self,
        distributions: Mapping[str, BaseDistribution],
        parent: Mapping[str, Scalar],
        lot: random.Random,
    ) -> dict[str, Scalar]:
        """Like `of_space` for parameters that the program suggests: those of the parent."""
        return {
            name: self._explored(name, each, parent, lot) for name, each in distributions.items()
        }

    def _explored(
        self,
        name: str,
        distribution: BaseDistribution,
        parent: Mapping[str, Scalar],
        lot: random.Random,
    ) -> Scalar:
        if name in parent and name in self.keep:
            return parent[name]
        if name not in parent or lot.random() < self.resample:
            return drawn(distribution, lot)
        factor = self.factor if lot.random() < 0.5 else 1.0 / self.factor
        return perturbed(distribution, parent[name], factor, lot)


def drawn(distribution: BaseDistribution, lot: random.Random) -> Scalar:
    """A value of a distribution, as the space has it: even, or even in its logarithm."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            return lot.choice(choices)
        case FloatDistribution(low=low, high=high, log=True):
            return _within(distribution, math.exp(lot.uniform(math.log(low), math.log(high))))
        case FloatDistribution(low=low, high=high, step=None):
            return _within(distribution, lot.uniform(low, high))
        case FloatDistribution(low=low, high=high, step=float(step)):
            return _within(distribution, low + step * lot.randint(0, round((high - low) / step)))
        case IntDistribution(low=low, high=high, log=True):
            return _within(
                distribution, math.exp(lot.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            )
        case IntDistribution(low=low, high=high, step=step):
            return low + step * lot.randint(0, (high - low) // step)
        case _:
            raise TypeError(f"{distribution!r} is not a distribution of a study file.")


def perturbed(
    distribution: BaseDistribution, value: Scalar, factor: float, lot: random.Random
) -> Scalar:
    """A value near another one.

    A number is multiplied and stays within its range; on a grid it moves to the next point at
    least. A numeric choice becomes a neighbouring one; any other choice is drawn again.

    Args:
        distribution: The parameter's distribution.
        value: The parent's value.
        factor: Above 1, or between 0 and 1.
        lot: Source of randomness.
    """
    if isinstance(distribution, CategoricalDistribution):
        return _neighbour(distribution, value, factor, lot)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert is_number(value)
    moved = _within(distribution, value * factor)
    step = distribution.step
    if step is not None and moved == _within(distribution, value):
        # Towards where the product went: 0 goes nowhere by itself.
        up = value * factor > value or (value == 0 and factor > 1)
        moved = _within(distribution, value + (step if up else -step))
    return moved


def _neighbour(
    distribution: CategoricalDistribution, value: Scalar, factor: float, lot: random.Random
) -> Scalar:
    if not all(is_number(each) for each in distribution.choices):
        return drawn(distribution, lot)
    in_order = sorted(distribution.choices, key=lambda each: float(each or 0.0))
    place = in_order.index(value) + (1 if factor > 1 else -1)
    return in_order[min(max(place, 0), len(in_order) - 1)]


def _within(distribution: FloatDistribution | IntDistribution, value: float) -> int | float:
    """The nearest value that the distribution can have."""
    low, high, step = distribution.low, distribution.high, distribution.step
    value = min(max(value, low), high)
    if step is not None:
        value = min(low + step * round((value - low) / step), high)
    return int(value) if isinstance(distribution, IntDistribution) else float(value)
