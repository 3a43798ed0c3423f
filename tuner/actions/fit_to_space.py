"""Whether values that people give, or that another study has tried, fit a search space."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search_spaces import Parameter, ParamValue, Scalar, SearchSpace
from search_spaces.space import is_number, is_one_of, nearest
from tuner.actions.config_input import Given
from tuner.config.command_template import format_value
from tuner.errors import ConfigError

_MAX_LINES = 20


class Misfit(ValueError):
    """A value does not fit; to be read after the parameter's name."""


class Misfits(ValueError):
    """Mistakes of one configuration, a sentence each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(mistakes))


def fit_all(
    given: Sequence[Given], fit: Callable[[Given], dict[str, ParamValue]]
) -> list[dict[str, ParamValue]]:
    """Fits all configurations, or none.

    Raises:
        ConfigError: With a line for each mistake.
    """
    fitting, lines = [], []
    for each in given:
        try:
            fitting.append(fit(each))
        except Misfits as error:
            lines += [f"{each.place}: {mistake}" for mistake in error.mistakes]
    if lines:
        rest = len(lines) - _MAX_LINES
        more = [f"... and {rest} more mistakes."] if rest > 0 else []
        raise ConfigError("\n".join([*lines[:_MAX_LINES], *more]))
    return fitting


def fitted(given: Given, space: SearchSpace) -> dict[str, ParamValue]:
    """The values to try, of the kinds that the space has.

    Constants are left out: every trial gets them.

    Raises:
        Misfits: If the space has no such configuration.
    """
    mistakes: list[str] = []
    values: dict[str, ParamValue] = {}
    parameters = {each.name: each for each in space.parameters}
    for name, value in given.params.items():
        try:
            if name in space.constants:
                check_constant(value, space.constants[name])
            else:
                values[name] = _converted(given, name, parameters, space)
        except Misfit as mistake:
            mistakes.append(f"{name} {mistake}")
    mistakes += _misplaced(space, values)
    if not mistakes and not values:
        mistakes.append(f"gives no parameter. There are {_listed(list(parameters))}.")
    if mistakes:
        raise Misfits(mistakes)
    return values


def _converted(
    given: Given, name: str, parameters: Mapping[str, Parameter], space: SearchSpace
) -> Scalar:
    if name not in parameters:
        near = nearest(name, space.names)
        hint = f"Did you mean {near!r}?" if near else f"There are {_listed(space.names)}."
        raise Misfit(f"is no parameter of this study. {hint}")
    return converted(given.params[name], parameters[name].distribution, is_text=given.is_text)


def fitted_freely(
    given: Given, distributions: Mapping[str, BaseDistribution]
) -> dict[str, ParamValue]:
    """The same for a space that the objective draws itself: checked where trials have shown it.

    Raises:
        Misfits: If a value is none that trials could have had.
    """
    mistakes: list[str] = []
    values: dict[str, ParamValue] = {}
    for name, value in given.params.items():
        try:
            if name in distributions:
                values[name] = converted(value, distributions[name], is_text=given.is_text)
            else:
                values[name] = _scalar(value, is_text=given.is_text)
        except Misfit as mistake:
            mistakes.append(f"{name} {mistake}")
    if not given.params:
        mistakes.append("gives no parameter.")
    if mistakes:
        raise Misfits(mistakes)
    return values


def converted(value: object, distribution: BaseDistribution, *, is_text: bool = False) -> Scalar:
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
    """
    Raises:
        Misfit: If a value is another one than the constant.
    """
    if not (is_one_of(value, [constant]) or value == format_value(constant)):
        shown = format_value(constant)
        raise Misfit(f"is {value!r}, but is the constant {shown} in this study.")


def _misplaced(space: SearchSpace, values: Mapping[str, ParamValue]) -> Iterator[str]:
    """Parameters that do not exist beside the other values, or only perhaps."""
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
