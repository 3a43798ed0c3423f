"""Whether a trial of one search space could be one of another. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.search_spaces import ParamValue, Scalar, SearchSpace
from tuner.search_spaces.fit import Misfit, check_constant, convert
from tuner.search_spaces.values import format_value


class LeftOut(ValueError):
    """Why a trial has no place in a space: in words that are the same for many trials."""


def refitted(params: Mapping[str, ParamValue], space: SearchSpace) -> dict[str, Scalar]:
    """The parameters of a trial, converted to a space.

    Every value of the trial must be possible in the space, as a parameter or as a constant. A
    constant that the trial did not have is accepted: the study file states it for all trials.

    Args:
        params: Parameters of the trial, including constants.
        space: Another space than the trial's.

    Raises:
        LeftOut: If the trial is not possible in the space.
    """
    values: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if not parameter.applies({**space.constants, **values}):
            continue
        name = parameter.name
        if name not in params:
            raise LeftOut(f"{name} is new, and these trials have no value of it")
        try:
            values[name] = convert(params[name], parameter.distribution)
        except Misfit as error:
            raise LeftOut(f"{name} is outside of its new range") from error
    for name, value in params.items():
        if name not in values:
            _check_place(name, value, space)
    return values


def _check_place(name: str, value: ParamValue, space: SearchSpace) -> None:
    if name in space.constants:
        constant = space.constants[name]
        try:
            check_constant(value, constant)
        except Misfit as error:
            raise LeftOut(f"{name} is always {format_value(constant)} now") from error
    elif name in space.names:
        raise LeftOut(f"{name} no longer exists with the other values")
    else:
        raise LeftOut(f"{name} is gone from the space")
