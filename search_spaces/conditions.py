"""Reads the `when` of a parameter: the values of earlier names for which it exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from optuna.distributions import CategoricalDistribution, FloatDistribution

from tuner.search_spaces.space import Parameter, SpaceError, is_one_of, nearest
from tuner.search_spaces.values import ParamValue, Scalar


def read_when(
    name: str,
    body: object,
    *,
    earlier: Mapping[str, Parameter],
    constants: Mapping[str, ParamValue],
    later: Collection[str],
) -> dict[str, tuple[Scalar, ...]]:
    """Reads `{parent: value}` or `{parent: [value, value]}`.

    Args:
        name: The conditional parameter.
        body: The value of `when` in the file.
        earlier: The parameters above this one.
        constants: All constants, in any position.
        later: The names at or below this one.

    Raises:
        SpaceError: If a parent is unknown or later, or can never have the value.
    """
    if body is None:
        return {}
    if not isinstance(body, Mapping) or not body:
        problem = f"is {body!r}, but must be a mapping, such as {{optimizer: sgd}}."
        raise SpaceError(problem, key=f"{name}.when")
    conditions: dict[str, tuple[Scalar, ...]] = {}
    for parent, value in body.items():
        key = f"{name}.when.{parent}"
        _check_parent(key, name, parent, known={*earlier, *constants}, later=later)
        conditions[parent] = tuple(_allowed_values(key, value))
        for allowed in conditions[parent]:
            _check_possible(key, allowed, parent, earlier.get(parent), constants.get(parent))
    return conditions


def _check_parent(
    key: str, name: str, parent: str, *, known: Collection[str], later: Collection[str]
) -> None:
    if parent in known:
        return
    if parent == name:
        raise SpaceError("is the parameter itself. Name an earlier one.", key=key)
    if parent in later:
        problem = f"names {parent}, which comes later. Move {parent} above {name}."
        raise SpaceError(problem, key=key)
    meant = nearest(parent, known)
    hint = f"Did you mean '{meant}'?" if meant else f"Earlier ones: {_listed(known)}."
    raise SpaceError(f"names {parent}, which is no parameter of this space. {hint}", key=key)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _allowed_values(key: str, value: object) -> list[Scalar]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise SpaceError("is an empty list, so that it never holds. Give a value.", key=key)
    allowed: list[Scalar] = []
    for each in values:
        if each is not None and not isinstance(each, str | int | float | bool):
            raise SpaceError(f"has {each!r}, but must be one value or a list of values.", key=key)
        allowed.append(each)
    return allowed


def _check_possible(
    key: str, allowed: Scalar, parent: str, parameter: Parameter | None, constant: ParamValue
) -> None:
    if parameter is None:
        if not is_one_of(allowed, [constant]):
            raise SpaceError(f"is {allowed!r}, but {parent} is always {constant!r}.", key=key)
    elif not parameter.can_be(allowed):
        problem = f"is {allowed!r}, but {parent} can never be that: {_range_in_words(parameter)}."
        raise SpaceError(problem, key=key)


def _range_in_words(parameter: Parameter) -> str:
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return f"its choices are {', '.join(map(repr, distribution.choices))}"
    if isinstance(distribution, FloatDistribution) and distribution.step is None:
        return "it is a float without a step, which never hits a value exactly"
    step = "" if distribution.step == 1 else f" in steps of {distribution.step}"
    return f"it goes from {distribution.low} to {distribution.high}{step}"
