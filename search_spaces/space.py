"""A search space: parameters with Optuna distributions, conditions and constants."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeGuard

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.search_spaces.values import ParamValue, Scalar

SIGNS_OF_A_PARAMETER = frozenset({"type", "low", "high", "choices"})
"""Keys of the full form of a parameter."""

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution


class SpaceError(ValueError):
    """A mistake in a search space.

    Args:
        problem: The problem and what to do; worded to follow the key.
        key: Dotted path below `search_space`, such as `lr.high`; empty for the space itself.
        file: The file with the mistake, if it is not the study file.
        others: More mistakes in the same space.
        suggestion: A replacement for the parameter; None for none.
    """

    def __init__(
        self,
        problem: str,
        *,
        key: str = "",
        file: str | None = None,
        others: Sequence[SpaceError] = (),
        suggestion: object = None,
    ) -> None:
        self.problem = problem
        self.key = key
        self.file = file
        self.others = tuple(others)
        self.suggestion = suggestion
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
    """One parameter of a search space."""

    #: Name of the parameter.
    name: str
    #: Its distribution, a class of Optuna.
    distribution: Distribution
    #: It exists only if each of these parameters has one of these values.
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)

    def applies(self, values: Mapping[str, ParamValue]) -> bool:
        """Whether this parameter exists in a trial with these values."""
        return all(
            name in values and is_one_of(values[name], allowed)
            for name, allowed in self.when.items()
        )

    def can_be(self, value: Scalar) -> bool:
        """Whether the distribution can produce exactly this value; false for a continuous one."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return is_one_of(value, choices)
            case IntDistribution() as whole:
                return is_number(value) and float(value).is_integer() and _is_in(whole, value)
            case real:
                return is_number(value) and real.step is not None and _is_in(real, value)

    def suggest(self, trial: SuggestingTrial) -> Scalar:
        """Gets a value of this parameter from an Optuna trial."""
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
        """The parameter in the full form of a study file."""
        mapping = _distribution_mapping(self.distribution)
        if self.when:
            mapping["when"] = {name: list(allowed) for name, allowed in self.when.items()}
        return mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """A search space that a study file declares."""

    #: The parameters in the order of the file.
    parameters: tuple[Parameter, ...]
    #: The constants, which every trial gets too.
    constants: Mapping[str, ParamValue] = field(default_factory=dict)
    #: Notes on how the space was parsed; a sentence each.
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters and constants."""
        return (*(parameter.name for parameter in self.parameters), *self.constants)

    def suggest(self, trial: SuggestingTrial) -> dict[str, ParamValue]:
        """Gets the values of the parameters that apply from an Optuna trial; adds the constants."""
        constants = copy.deepcopy(dict(self.constants))
        values: dict[str, ParamValue] = {}
        for parameter in self.parameters:
            if parameter.applies({**constants, **values}):
                values[parameter.name] = parameter.suggest(trial)
        return values | constants

    def to_mapping(self) -> dict[str, ParamValue]:
        """The space in the form in which it is stored."""
        parameters = {each.name: each.to_mapping() for each in self.parameters}
        constants: dict[str, ParamValue] = {
            name: {"value": value} if is_like_a_parameter(value) or is_wrapped(value) else value
            for name, value in self.constants.items()
        }
        return parameters | copy.deepcopy(constants)

    def to_file_mapping(self) -> dict[str, ParamValue]:
        """The space in the form of a study file, in which a list is a parameter."""
        constants: dict[str, ParamValue] = {
            name: {"value": value} if _reads_otherwise(value) else value
            for name, value in self.constants.items()
        }
        return self.to_mapping() | copy.deepcopy(constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineByRunSpace:
    """A space that a function of the user suggests itself, called with the trial."""

    #: Name of the module.
    module: str
    #: Name of the function.
    function: str

    @property
    def target(self) -> str:
        """`module:function`, as in the study file."""
        return f"{self.module}:{self.function}"


#: A declared space, or a function that suggests the parameters itself.
AnySpace: TypeAlias = SearchSpace | DefineByRunSpace


def identity(space: AnySpace | None) -> str:
    """Returns a digest of a space that does not depend on the order of its parameters."""
    document: object = space.target if isinstance(space, DefineByRunSpace) else None
    if isinstance(space, SearchSpace):
        document = space.to_mapping()
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def is_like_a_parameter(value: object) -> TypeGuard[dict[str, ParamValue]]:
    """Whether a stored value is a parameter, and a constant of this form has to be wrapped."""
    return isinstance(value, dict) and not SIGNS_OF_A_PARAMETER.isdisjoint(value)


def is_wrapped(value: object) -> TypeGuard[dict[str, ParamValue]]:
    """Whether a stored value is `{value: constant}`, for a constant that reads otherwise."""
    if not isinstance(value, dict) or value.keys() != {"value"}:
        return False
    return is_like_a_parameter(value["value"]) or is_wrapped(value["value"])


def _reads_otherwise(constant: ParamValue) -> bool:
    """Whether a constant, written unchanged in a study file, would be parsed differently."""
    is_call = isinstance(constant, str) and constant.rstrip().endswith(")")
    return isinstance(constant, list | dict) or is_call


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number; `true` is not one, although Python says so."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_one_of(value: object, allowed: Iterable[object]) -> bool:
    """Membership that distinguishes `true` and 1."""
    is_bool = isinstance(value, bool)
    return any(value == each and is_bool == isinstance(each, bool) for each in allowed)


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
