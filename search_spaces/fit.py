"""Checks whether values fit a search space, and explains misfits. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.search_spaces.space import Parameter, SearchSpace, is_number, is_one_of, nearest
from tuner.search_spaces.values import ParamValue, Scalar, format_value


class Misfit(ValueError):
    """A value does not fit; to be read after the parameter's name."""


class Misfits(ValueError):
    """Mistakes of one configuration, a sentence each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(mistakes))


def fit(
    space: SearchSpace, params: Mapping[str, object], *, is_text: bool = False
) -> dict[str, ParamValue]:
    """Converts a configuration to the types of a space.

    Args:
        space: The space.
        params: Values by name. Constants may be given, but only with their own value.
        is_text: Whether all values are text, as on a command line.

    Returns:
        The values without constants, which every trial gets.

    Raises:
        Misfits: If the space has no such configuration.
    """
    mistakes: list[str] = []
    values: dict[str, ParamValue] = {}
    parameters = {each.name: each for each in space.parameters}
    for name, value in params.items():
        try:
            if name in space.constants:
                check_constant(value, space.constants[name])
            else:
                values[name] = _fit_one(space, parameters, name, value, is_text=is_text)
        except Misfit as mistake:
            mistakes.append(f"{name} {mistake}")
    mistakes += _misplaced(space, values)
    if not mistakes and not values:
        mistakes.append(f"gives no parameter. There are {_listed(list(parameters))}.")
    if mistakes:
        raise Misfits(mistakes)
    return values


def _fit_one(
    space: SearchSpace,
    parameters: Mapping[str, Parameter],
    name: str,
    value: object,
    *,
    is_text: bool,
) -> Scalar:
    if name not in parameters:
        near = nearest(name, space.names)
        hint = f"Did you mean {near!r}?" if near else f"There are {_listed(space.names)}."
        raise Misfit(f"is no parameter of this study. {hint}")
    return convert(value, parameters[name].distribution, is_text=is_text)


def fit_distributions(
    distributions: Mapping[str, BaseDistribution],
    params: Mapping[str, object],
    *,
    is_text: bool = False,
) -> dict[str, ParamValue]:
    """Like `fit` for a define-by-run space, as far as trials have shown it.

    Args:
        distributions: Distributions of trials' parameters, by name.
        params: Values by name.
        is_text: Whether all values are text, as on a command line.

    Raises:
        Misfits: If trials could not have had a value.
    """
    mistakes: list[str] = []
    values: dict[str, ParamValue] = {}
    for name, value in params.items():
        try:
            if name in distributions:
                values[name] = convert(value, distributions[name], is_text=is_text)
            else:
                values[name] = _scalar(value, is_text=is_text)
        except Misfit as mistake:
            mistakes.append(f"{name} {mistake}")
    if not params:
        mistakes.append("gives no parameter.")
    if mistakes:
        raise Misfits(mistakes)
    return values


def convert(value: object, distribution: BaseDistribution, *, is_text: bool = False) -> Scalar:
    """A value of the kind that a distribution has.

    Raises:
        Misfit: If the distribution cannot give it.
    """
    match distribution:
        case CategoricalDistribution(choices=choices):
            return _choice(value, choices, is_text=is_text)
        case IntDistribution():
            number = _number(value, is_text=is_text)
            if not number.is_integer():
                raise Misfit(f"is {value}, but must be a whole number.")
            _check_range(number, distribution)
            return int(number)
        case FloatDistribution():
            number = _number(value, is_text=is_text)
            _check_range(number, distribution)
            return number
    raise Misfit(f"has a distribution that is not known here: {distribution}.")


def _choice(value: object, choices: Sequence[Scalar], *, is_text: bool) -> Scalar:
    for choice in choices:
        if is_one_of(value, [choice]) or (is_text and value == format_value(choice)):
            return choice
    shown = ", ".join(format_value(each) for each in choices)
    near = nearest(str(value), [each for each in choices if isinstance(each, str)])
    hint = f" Did you mean {near!r}?" if near else ""
    raise Misfit(f"is {value!r}, but must be one of {shown}.{hint}")


def _number(value: object, *, is_text: bool) -> float:
    try:
        number = float(value) if is_text and isinstance(value, str) else value
    except ValueError:
        number = None
    if not is_number(number) or not math.isfinite(number):
        raise Misfit(f"is {value!r}, but must be a number.")
    return float(number)


def _check_range(number: float, distribution: FloatDistribution | IntDistribution) -> None:
    low, high = distribution.low, distribution.high
    if not low <= number <= high:
        raise Misfit(f"is {number:g}, but goes from {low:g} to {high:g}.")
    if distribution.step is not None:
        steps = (number - low) / distribution.step
        if abs(steps - round(steps)) > 1e-8:
            raise Misfit(f"is {number:g}, but goes from {low:g} in steps of {distribution.step:g}.")


def check_constant(value: object, constant: ParamValue) -> None:
    """Checks a value against a constant.

    Raises:
        Misfit: If they differ.
    """
    if not (is_one_of(value, [constant]) or value == format_value(constant)):
        shown = format_value(constant)
        raise Misfit(f"is {value!r}, but is the constant {shown} in this study.")


def _misplaced(space: SearchSpace, values: Mapping[str, ParamValue]) -> Iterator[str]:
    """Parameters that do not exist with the other values, or only possibly."""
    known = {**space.constants, **values}
    for parameter in space.parameters:
        if parameter.name not in values or parameter.applies(known):
            continue
        for parent, allowed in parameter.when.items():
            words = " or ".join(format_value(each) for each in allowed)
            place = f"{parameter.name} exists only where {parent} is {words}"
            if parent not in known:
                yield f"{place}. Give {parent} too."
            elif not is_one_of(known[parent], allowed):
                yield f"{place}, but it is {format_value(known[parent])}."


def _scalar(value: object, *, is_text: bool) -> Scalar:
    found = _from_text(value) if is_text and isinstance(value, str) else value
    if found is None or isinstance(found, str | int | float | bool):
        return found
    raise Misfit(f"is {value!r}, but must be one value.")


def _from_text(text: str) -> object:
    """The inverse of `format_value`."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
