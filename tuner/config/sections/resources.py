"""The devices of one trial: whole ones, a share of one, or a number set by a parameter."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Annotated, Self, TypeAlias

from optuna.distributions import CategoricalDistribution, IntDistribution
from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from tuner.config.mistakes import Mistake
from tuner.config.model import Model
from tuner.config.notation.fields import SIZE, Size, one_or_several
from tuner.config.notation.size import parse_size
from tuner.devices.allocation.width import (
    ONE,
    FixedWidth,
    LearnedWidth,
    MemoryShare,
    Width,
    WidthByParameter,
    WidthRule,
    n_devices_of,
    width_of_number,
)
from tuner.search_spaces import AnySpace, Parameter, SearchSpace

_PLACE = re.compile(r"\{(\w+)\}")
_AUTO = "auto"
#: A whole-number parameter with more values is judged by its two ends.
_MAX_VALUES = 1000
_NUMBERS = (
    {"type": "integer", "minimum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
)
_PARAMETER = {"type": "string", "pattern": r"^\s*\{\w+\}\s*$"}


def read_amount(value: object) -> WidthRule:
    """Parses `2`, `0.25` or `"{parameter}"`.

    Raises:
        ValueError: If it is none of these; worded to follow the key.
    """
    if isinstance(value, str):
        place = _PLACE.fullmatch(value.strip())
        if place is None:
            raise ValueError(
                f"is {value!r}, but must be a number, or a parameter in braces, such as "
                '"{world_size}".'
            )
        return WidthByParameter(name=place[1])
    try:
        return FixedWidth(width=width_of_number(value))
    except ValueError as error:
        raise ValueError(f"is {value!r}, but {error}.") from error


def _read_gpus(value: object) -> WidthRule:
    return LearnedWidth() if value == _AUTO else read_amount(value)


def _read_memory(value: object) -> WidthRule:
    return FixedWidth(width=MemoryShare(memory_bytes=parse_size(value)))


def _read_types(value: object) -> object:
    """One name is a list of one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"is {value!r}, but must name types of GPU, such as [H200, A100].")
    return tuple(names)


_Gpus: TypeAlias = Annotated[
    WidthRule,
    PlainValidator(_read_gpus),
    WithJsonSchema({"title": "number of GPUs", "anyOf": [*_NUMBERS, _PARAMETER, {"const": _AUTO}]}),
]
_Cpus: TypeAlias = Annotated[
    WidthRule,
    PlainValidator(read_amount),
    WithJsonSchema({"title": "number of CPU slots", "anyOf": [*_NUMBERS, _PARAMETER]}),
]
_Memory: TypeAlias = Annotated[WidthRule, PlainValidator(_read_memory), WithJsonSchema(SIZE)]
_GpuTypes: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(_read_types), WithJsonSchema(one_or_several("GPU types"))
]


class ResourcesConfig(Model):
    """Resources of one trial: GPUs, CPU slots, or memory of one GPU."""

    gpus: _Gpus | None = Field(
        default=None,
        description="GPUs of one trial: a number (2), a share of one GPU (0.25), `auto` (as many "
        'trials on one GPU as its memory and use allow) or a parameter (`"{n_gpus}"`).',
        examples=[2],
    )
    cpus: _Cpus | None = Field(
        default=None,
        description="CPU slots of one trial, for training without a GPU: a number or a parameter.",
        examples=[1],
    )
    memory: _Memory | None = Field(
        default=None,
        description="GPU memory of one trial. Trials share a GPU as long as they fit.",
        examples=["8GiB"],
    )
    gpu_types: _GpuTypes = Field(
        default_factory=tuple,
        alias="gpu_type",
        description="Runs trials only on GPUs of these types.",
        examples=[["H200", "A100"]],
    )
    min_memory_bytes: Size | None = Field(
        default=None,
        alias="min_memory",
        description="Runs trials only on GPUs with at least this much memory.",
        examples=["40GiB"],
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [key for key in ("gpus", "cpus", "memory") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(
                f"has both {' and '.join(given)}. Give one of them, for example {{gpus: 1}}."
            )
        if not given and not self._selects_gpus:
            raise ValueError("has neither gpus nor cpus. Give one of them, for example {gpus: 1}.")
        if self.cpus is not None and self._selects_gpus:
            raise ValueError("has cpus, but gpu_type and min_memory are about GPUs. Remove them.")
        return self

    @property
    def key(self) -> str:
        """The key that sets a trial's width."""
        given = (key for key in ("cpus", "memory") if getattr(self, key) is not None)
        return next(given, "gpus")

    @property
    def rule(self) -> WidthRule:
        """The rule for a trial's width."""
        return self.gpus or self.cpus or self.memory or FixedWidth(width=ONE)

    @property
    def _selects_gpus(self) -> bool:
        return bool(self.gpu_types) or self.min_memory_bytes is not None


def possible_widths(rule: WidthRule, space: AnySpace | None) -> tuple[Width, ...]:
    """All widths that a trial of the study may have; nothing is refused here.

    Parameter values that are no valid width are skipped: `width_mistakes` reports them.
    """
    match rule:
        case FixedWidth(width=width):
            return (width,)
        case LearnedWidth():
            return (ONE,)
        case WidthByParameter(name=name):
            widths = []
            for value in _values_of(name, space):
                try:
                    widths.append(width_of_number(value))
                except ValueError:
                    continue
            return tuple(widths)


def width_mistakes(
    resources: ResourcesConfig | None, space: AnySpace | None, *, parallel: str | None
) -> Iterator[Mistake]:
    """Checks that every trial has the width's parameter, and `parallel` several devices."""
    rule = resources.rule if resources else FixedWidth(width=ONE)
    key = f"trial.resources.{resources.key}" if resources else ""
    if isinstance(rule, WidthByParameter):
        problem = _problem_of_parameter(rule.name, space)
        if problem:
            yield Mistake(key=key, problem=f"is '{{{rule.name}}}', but {problem}")
            return
    widest = max(map(n_devices_of, possible_widths(rule, space)), default=1)
    if parallel is not None and widest <= 1:
        yield Mistake(
            key="trial.parallel",
            problem=f"is '{parallel}', but a trial here has one device at most "
            f"({key or 'trial.resources'} is not above 1). Remove trial.parallel.",
        )


def _problem_of_parameter(name: str, space: AnySpace | None) -> str:
    if not isinstance(space, SearchSpace):
        return (
            "a trial's devices are chosen before its program draws parameters. "
            f"Declare {name} in search_space."
        )
    if name not in space.names:
        close = difflib.get_close_matches(name, space.names, n=1, cutoff=0.5)
        known = f"Known: {', '.join(space.names) or 'none'}."
        hint = f"Did you mean '{{{close[0]}}}'?" if close else known
        return f"{name} is not in search_space. {hint}"
    parameter = _parameter(name, space)
    if parameter is not None and parameter.when:
        return f"{name} is absent in some trials. Name a parameter without `when`."
    for value in _values_of(name, space):
        try:
            width_of_number(value)
        except ValueError as error:
            return f"{name} can be {value!r}, which {error}."
    return ""


def _parameter(name: str, space: SearchSpace) -> Parameter | None:
    return next((each for each in space.parameters if each.name == name), None)


def _values_of(name: str, space: AnySpace | None) -> tuple[object, ...]:
    if not isinstance(space, SearchSpace):
        return ()
    parameter = _parameter(name, space)
    if parameter is None:
        return (space.constants[name],) if name in space.constants else ()
    match parameter.distribution:
        case CategoricalDistribution(choices=choices):
            return tuple(choices)
        case IntDistribution(low=low, high=high, step=step):
            values = range(low, high + 1, step)
            return tuple(values) if len(values) <= _MAX_VALUES else (low, high)
        case real:
            return (real.low, real.high)
