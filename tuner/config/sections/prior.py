"""`prior`: an expert's belief about good configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from optuna.distributions import CategoricalDistribution
from pydantic import BeforeValidator

from tuner.config.mistakes import Mistake
from tuner.search_spaces import AnySpace, Parameter, ParamValue, SearchSpace
from tuner.search_spaces.space import is_number, nearest

#: Samplers that do not depend on the origin of each trial. The others count generations, walk a
#: grid or update a distribution.
_FITTING = ("auto", "curve_gp", "tpe", "random", "gp")


def read_prior(value: object) -> object:
    """A mapping of parameters' names to values."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "must be a mapping of parameters to the values that you believe in, such as "
            "{lr: 3.0e-4, width: 128}."
        )
    for name, each in value.items():
        if not isinstance(each, str | int | float | bool):
            raise ValueError(f"has {each!r} for {name!r}, but must have one value of each.")
    return dict(value)


Prior: TypeAlias = Annotated[Mapping[str, str | int | float | bool], BeforeValidator(read_prior)]


def prior_mistakes(
    prior: Mapping[str, ParamValue], space: AnySpace | None, sampler: str
) -> Iterator[Mistake]:
    """Checks that each value is valid for its parameter; a program's own space is unknown here."""
    if prior:
        yield from sampler_mistakes("prior", sampler)
    if not isinstance(space, SearchSpace):
        return
    known = {each.name: each for each in space.parameters}
    for name, value in prior.items():
        if name in known:
            yield from _value_mistakes(known[name], value)
        elif name in space.constants:
            problem = "is a constant of search_space, which is not searched. Remove it."
            yield Mistake(key=f"prior.{name}", problem=problem)
        else:
            meant = nearest(name, known)
            hint = f"Did you mean {meant!r}?" if meant else f"It has: {', '.join(known)}."
            problem = f"is no parameter of search_space. {hint}"
            yield Mistake(key=f"prior.{name}", problem=problem)


def sampler_mistakes(key: str, sampler: str) -> Iterator[Mistake]:
    """Checks that the sampler can be combined with configurations from another source."""
    if sampler.lower() not in _FITTING:
        problem = f"works with {', '.join(_FITTING)}, but sampler is '{sampler}'. Choose another."
        yield Mistake(key=key, problem=problem)


def _value_mistakes(parameter: Parameter, value: ParamValue) -> Iterator[Mistake]:
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        allowed = f"one of {', '.join(map(str, distribution.choices))}"
        is_fine = not isinstance(value, list | dict) and parameter.can_be(value)
    else:
        allowed = f"a number from {distribution.low:g} to {distribution.high:g}"
        is_fine = is_number(value) and distribution.low <= value <= distribution.high
    if not is_fine:
        problem = f"is {value!r}, but must be {allowed}, as search_space has it."
        yield Mistake(key=f"prior.{parameter.name}", problem=problem + _hint(value))


def _hint(value: ParamValue) -> str:
    """A number in quotes is text."""
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return ""
    return " Write it without quotes."
