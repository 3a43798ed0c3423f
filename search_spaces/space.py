"""What a search space is: parameters with Optuna distributions, conditions and constants."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeGuard

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

Scalar: TypeAlias = str | int | float | bool | None
ParamValue: TypeAlias = "Scalar | list[ParamValue] | dict[str, ParamValue]"
"""A sampled value or a constant: whatever JSON can hold."""

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution


class SpaceError(ValueError):
    """The search space is wrong.

    Args:
        problem: What is wrong and what to do, to be read after the key.
        key: Dotted path below `search_space`, such as `lr.high`; empty for the space itself.
        file: The space's own file, where the mistake is there and not in the study file.
        others: More mistakes in the same space.
    """

    def __init__(
        self,
        problem: str,
        *,
        key: str = "",
        file: str | None = None,
        others: Sequence[SpaceError] = (),
    ) -> None:
        self.problem = problem
        self.key = key
        self.file = file
        self.others = tuple(others)
        super().__init__(f"{key} {problem}" if key else problem)


class SuggestingTrial(Protocol):
    """The part of `optuna.Trial` that a declared space needs."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float: ...

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int: ...

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One searched parameter.

    It is suggested only where each name in `when` has one of the values given there.
    """

    name: str
    distribution: Distribution
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)

    def applies(self, values: Mapping[str, ParamValue]) -> bool:
        """Whether this parameter exists beside `values`, the ones already known."""
        return all(
            name in values and is_one_of(values[name], allowed)
            for name, allowed in self.when.items()
        )

    def can_be(self, value: Scalar) -> bool:
        """Whether the distribution can produce exactly this value."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return is_one_of(value, choices)
            case IntDistribution() as whole:
                return is_number(value) and float(value).is_integer() and _is_in(whole, value)
            case real:
                return is_number(value) and real.step is not None and _is_in(real, value)

    def suggest(self, trial: SuggestingTrial) -> Scalar:
        """Asks the trial for this parameter's value."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return trial.suggest_categorical(self.name, choices)
            case IntDistribution(low=low, high=high, step=step, log=log):
                return trial.suggest_int(self.name, low, high, step=step, log=log)
            case real:
                return trial.suggest_float(
                    self.name, real.low, real.high, step=real.step, log=real.log
                )

    def to_mapping(self) -> dict[str, ParamValue]:
        """The parameter as a study file writes it."""
        mapping = _distribution_mapping(self.distribution)
        if self.when:
            mapping["when"] = {name: list(allowed) for name, allowed in self.when.items()}
        return mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The parameters in the order of the file, and constants that every trial gets as well."""

    parameters: tuple[Parameter, ...]
    constants: Mapping[str, ParamValue] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters and constants."""
        return (*(parameter.name for parameter in self.parameters), *self.constants)

    def suggest(self, trial: SuggestingTrial) -> dict[str, ParamValue]:
        """Asks for the values of one trial; a parameter whose `when` fails is left out."""
        constants = copy.deepcopy(dict(self.constants))
        values: dict[str, ParamValue] = {}
        for parameter in self.parameters:
            if parameter.applies({**constants, **values}):
                values[parameter.name] = parameter.suggest(trial)
        return values | constants

    def to_mapping(self) -> dict[str, ParamValue]:
        """The space as a study file writes it."""
        parameters = {each.name: each.to_mapping() for each in self.parameters}
        return {**parameters, **copy.deepcopy(dict(self.constants))}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineByRunSpace:
    """A space that the user's function draws itself, called with the trial in the worker."""

    module: str
    function: str

    @property
    def target(self) -> str:
        """`module:function`, as the study file has it."""
        return f"{self.module}:{self.function}"


AnySpace: TypeAlias = SearchSpace | DefineByRunSpace


def identity(space: AnySpace | None) -> str:
    """A digest that is equal for equal spaces, whatever the order of their parameters."""
    document: object = space.target if isinstance(space, DefineByRunSpace) else None
    if isinstance(space, SearchSpace):
        document = space.to_mapping()
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number; `true` is not one, although Python says so."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_one_of(value: object, allowed: Iterable[object]) -> bool:
    """Membership that keeps `true` and 1 apart."""
    is_bool = isinstance(value, bool)
    return any(value == each and is_bool == isinstance(each, bool) for each in allowed)


def format_value(value: ParamValue) -> str:
    """A value on a command line: text as it is, all else as JSON (`1e-05`, `true`, `[1, 2]`)."""
    return value if isinstance(value, str) else json.dumps(value)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one most likely meant."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)), None)


def _is_in(distribution: FloatDistribution | IntDistribution, number: float) -> bool:
    if not distribution.low <= number <= distribution.high:
        return False
    steps = (number - distribution.low) / (distribution.step or 1)
    return abs(steps - round(steps)) < 1e-8


def _distribution_mapping(distribution: Distribution) -> dict[str, ParamValue]:
    if isinstance(distribution, CategoricalDistribution):
        return {"type": "categorical", "choices": list(distribution.choices)}
    is_whole = isinstance(distribution, IntDistribution)
    mapping: dict[str, ParamValue] = {
        "type": "int" if is_whole else "float",
        "low": distribution.low,
        "high": distribution.high,
    }
    if distribution.log:
        mapping["log"] = True
    if distribution.step not in (None, 1 if is_whole else None):
        mapping["step"] = distribution.step
    return mapping
