"""The values of a grid search, derived from the search space if the study file has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.search.by_name import Place
from tuner.search_spaces import Parameter, Scalar, SearchSpace
from tuner.search_spaces.space import is_number, nearest

MAX_POINTS = 100_000
"""Optuna keeps every point of a grid in memory."""


def values(given: object, space: SearchSpace | None, place: Place) -> dict[str, list[Scalar]]:
    """The values of each parameter.

    Args:
        given: `sampler.search_space` of the study file: lists by parameter, or None.
        space: The declared space; the source of parameters missing in `given`.
        place: Position of `given` in the file.

    Raises:
        ConfigError: If a parameter has no finite list of values, or there are too many points.
    """
    lists = _given_lists(given, place)
    if space is None:
        if not lists:
            problem = "is missing, and there is no search_space to take it from. Give the values"
            raise place.error(f"{problem}, such as {{lr: [0.01, 0.1]}}.")
        return lists
    parameters = {parameter.name: parameter for parameter in space.parameters}
    _refuse_conditional(space, place)
    for name, candidates in lists.items():
        _check_given(name, candidates, parameters, place)
    derived = {name: each for name, each in parameters.items() if name not in lists}
    lengths = {name: len(candidates) for name, candidates in lists.items()}
    _refuse_huge(lengths | {name: _count(each, place) for name, each in derived.items()}, place)
    return lists | {name: _derived(each) for name, each in derived.items()}


def refuse_endless(space: SearchSpace, place: Place) -> None:
    """Refuses a float without a step, which has no list of values."""
    for parameter in space.parameters:
        if _is_continuous(parameter):
            raise place.error(
                f"is 'brute_force', but {parameter.name} is a float without a step, so that its "
                f"values have no end. Add a step to search_space.{parameter.name}."
            )


def _given_lists(given: object, place: Place) -> dict[str, list[Scalar]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise place.error(f"is {given!r}, but must be lists by parameter, such as {{lr: [0.1]}}.")
    for name, candidates in given.items():
        if not isinstance(candidates, list) or not candidates:
            raise place.below(name).error(f"is {candidates!r}, but must be a list of values.")
    return {name: list(candidates) for name, candidates in given.items()}


def _check_given(
    name: str, candidates: Sequence[Scalar], parameters: Mapping[str, Parameter], place: Place
) -> None:
    parameter = parameters.get(name)
    if parameter is None:
        meant = nearest(name, parameters)
        hint = f"Did you mean '{meant}'?" if meant else f"It has {', '.join(parameters)}."
        raise place.below(name).error(f"is not a parameter of search_space. {hint}")
    for candidate in candidates:
        if not _is_possible(parameter, candidate):
            problem = f"has {candidate!r}, which is outside of search_space.{name}."
            raise place.below(name).error(problem)


def _is_possible(parameter: Parameter, candidate: Scalar) -> bool:
    distribution = parameter.distribution
    if _is_continuous(parameter) and isinstance(distribution, FloatDistribution):
        return is_number(candidate) and distribution.low <= candidate <= distribution.high
    return parameter.can_be(candidate)


def _is_continuous(parameter: Parameter) -> bool:
    distribution = parameter.distribution
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def _refuse_conditional(space: SearchSpace, place: Place) -> None:
    conditional = [parameter.name for parameter in space.parameters if parameter.when]
    if conditional:
        raise place.error(
            f"cannot be made: {', '.join(conditional)} depends on `when`, and a grid would run the "
            "same configuration again for each of its values. Use sampler: brute_force."
        )


def _count(parameter: Parameter, place: Place) -> int:
    match parameter.distribution:
        case CategoricalDistribution(choices=choices):
            return len(choices)
        case IntDistribution(low=low, high=high, step=step):
            return len(range(low, high + 1, step))
        case FloatDistribution(low=low, high=high, step=float(step)):
            return round((high - low) / step) + 1
    raise place.error(
        f"has no values for {parameter.name}, a float without a step. Give them here, such as "
        f"{{{parameter.name}: [...]}}, or add a step to search_space.{parameter.name}."
    )


def _derived(parameter: Parameter) -> list[Scalar]:
    match parameter.distribution:
        case CategoricalDistribution(choices=choices):
            return list(choices)
        case IntDistribution(low=low, high=high, step=step):
            return list(range(low, high + 1, step))
        case FloatDistribution(low=low, high=high, step=step):
            # In decimals, because 0.1 + 0.1 + 0.1 is not the 0.3 that the user wrote.
            start, end, width = (Decimal(str(each)) for each in (low, high, step))
            return [float(start + i * width) for i in range(int((end - start) / width) + 1)]


def _refuse_huge(lengths: Mapping[str, int], place: Place) -> None:
    n_points = math.prod(lengths.values())
    if n_points > MAX_POINTS:
        sizes = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise place.error(
            f"makes a grid of {n_points:,} points ({sizes}), and at most {MAX_POINTS:,} are "
            "allowed. Give shorter lists here, or use another sampler."
        )
