"""Active parameters of many configurations in a space with conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from tuner.search_spaces import ParamValue, Scalar, SearchSpace
from tuner.search_spaces.space import is_one_of

Flags = NDArray[np.bool_]
ValuesOf = Callable[[str], Sequence[ParamValue]]
"""[m], the values of a parameter in m configurations."""


class Activity:
    """The conditions of a space.

    Args:
        declared: With conditions; by the study file, or as inferred from trials.
    """

    def __init__(self, declared: SearchSpace) -> None:
        self.declared = declared
        #: All parameters with more than one value, regardless of conditions.
        self.space: Mapping[str, BaseDistribution] = {
            each.name: each.distribution
            for each in sorted(declared.parameters, key=lambda each: each.name)
            if not each.distribution.single()
        }

    def flags(self, values_of: ValuesOf, m: int) -> dict[str, Flags]:
        """[m], by parameter: whether each configuration has it.

        Args:
            values_of: Returns the values of a parameter with more than one value, regardless of
                conditions.
            m: Number of configurations.
        """
        found: dict[str, Flags] = {}
        for each in self.declared.parameters:
            has = np.ones(m, dtype=bool)
            for parent, allowed in each.when.items():
                has &= found.get(parent, True) & self._is_one_of(parent, allowed, values_of)
            found[each.name] = has
        return found

    def _is_one_of(
        self, parent: str, allowed: Sequence[Scalar], values_of: ValuesOf
    ) -> Flags | bool:
        if parent in self.declared.constants:
            return is_one_of(self.declared.constants[parent], allowed)
        if parent in self.space:
            return np.array([is_one_of(each, allowed) for each in values_of(parent)])
        (only,) = (each for each in self.declared.parameters if each.name == parent)
        return is_one_of(any_of(only.distribution), allowed)

    def only(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """The values of the parameters that a configuration has."""
        known: dict[str, ParamValue] = dict(self.declared.constants)
        kept: dict[str, ParamValue] = {}
        for each in self.declared.parameters:
            if not each.applies(known):
                continue
            if each.name in params:
                known[each.name] = kept[each.name] = params[each.name]
            elif each.distribution.single():
                known[each.name] = any_of(each.distribution)
        return kept

    def is_whole(self, trial: FrozenTrial) -> bool:
        """Whether a trial has all parameters that apply, as declared."""
        known = {**self.declared.constants, **trial.params}
        return all(
            trial.distributions.get(each.name) == each.distribution
            for each in self.declared.parameters
            if each.applies(known)
        )


def any_of(distribution: BaseDistribution) -> Scalar:
    """A value of a distribution; the only one if it has no other."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    return distribution.low  # type: ignore[attr-defined, no-any-return]  # Ranges have one.
