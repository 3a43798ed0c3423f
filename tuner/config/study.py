"""study.yaml as frozen, checked values: the one place where pydantic is used.

Reading the file, `--set` and the flags are in `study_file`; whether this machine can do
what the file asks is in `machine_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    PlainValidator,
    PrivateAttr,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import core_schema

from search_spaces import AnySpace, load_space
from tuner.config import rules
from tuner.config.duration import parse_duration
from tuner.config.error_text import Keys, to_mistakes
from tuner.config.metric_pattern import expand
from tuner.config.mistakes import Mistake, refuse, to_error
from tuner.config.model import Model
from tuner.config.sections.budget import BudgetConfig
from tuner.config.sections.checkpoints import CheckpointsConfig
from tuner.config.sections.confirm import ConfirmConfig
from tuner.config.sections.logs import DEFAULT_MAX_LOG_BYTES, read_max_log
from tuner.config.sections.prior import prior_mistakes, read_prior
from tuner.config.sections.resources import ResourcesConfig, width_mistakes
from tuner.config.sections.transfer import read_transfer, transfer_mistakes
from tuner.config.sections.usage import UsageConfig
from tuner.config.sections.widen import widen_mistakes
from tuner.config.storage_url import default_storage, resolve_storage
from tuner.devices.request import AutoDevices, CpuSlots, DeviceRequest, parse_device_request


class Direction(Enum):
    """Which values of an objective are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Parallel(Enum):
    """How one trial uses several devices."""

    DDP = "ddp"
    SINGLE_PROCESS = "single_process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a study came from."""

    #: Absolute.
    path: Path
    #: The path as the user named it, for messages.
    file: str
    text: str
    #: `key=value` of each `--set`.
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What validation needs beside the file's own values."""

    source: Source
    environ: Mapping[str, str]


def _reading(context: object) -> _Reading:
    assert isinstance(context, _Reading), "a StudyConfig is made by validate_study only"
    return context


def _read_space(value: object, info: ValidationInfo) -> AnySpace | None:
    return load_space(value, _reading(info.context).source.path.parent)


def _read_storage(value: object, info: ValidationInfo) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be text, such as sqlite:///study.db.")
    reading = _reading(info.context)
    text = value or default_storage(info.data.get("study", "study"))
    return resolve_storage(text, folder=reading.source.path.parent, environ=reading.environ)


# Not a PlainValidator, for which pydantic would also walk the types inside of a space.
_SPACE_SCHEMA = GetPydanticSchema(
    lambda _source, _handler: core_schema.with_info_plain_validator_function(_read_space)
)
_WholeNumber: TypeAlias = Annotated[int, Strict()]
_Duration: TypeAlias = Annotated[float, PlainValidator(parse_duration)]
_Hook: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(rules.read_hook)]


class MetricsConfig(Model):
    """How the metrics of a command are found in its output."""

    #: A regular expression in which `{name}` is a number.
    pattern: Annotated[str, AfterValidator(rules.check_pattern)]

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern, with a group for each metric that it finds."""
        return re.compile(expand(self.pattern))


class TrialConfig(Model):
    """What is run for one trial, and on what terms."""

    function: Annotated[str, AfterValidator(rules.check_function)] | None = None
    command: Annotated[tuple[str, ...], BeforeValidator(rules.read_command)] | None = None
    resources: ResourcesConfig | None = None
    parallel: Parallel | None = None
    timeout_s: _Duration | None = Field(default=None, alias="timeout")
    stall_timeout_s: _Duration | None = Field(default=None, alias="stall_timeout")
    retries: Annotated[_WholeNumber, Field(ge=0)] = 0
    stop_grace_s: _Duration = Field(default=10.0, alias="stop_grace")
    #: Of the output that each rank of an attempt keeps, the first and the last part.
    max_log_bytes: Annotated[int, PlainValidator(read_max_log)] = Field(
        default=DEFAULT_MAX_LOG_BYTES, alias="max_log"
    )
    #: None: JSON lines.
    metrics: MetricsConfig | None = None
    env: Annotated[Mapping[str, str], BeforeValidator(rules.read_env)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check_trial(
            has_function=self.function is not None,
            has_command=self.command is not None,
            has_metrics=self.metrics is not None,
        )
        return self

    @property
    def is_ddp(self) -> bool:
        """Whether a wide trial is one rank per device: a function is, a command if it says so."""
        if self.parallel is None:
            return self.function is not None
        return self.parallel is Parallel.DDP


class _NamedConfig(Model):
    """Something of Optuna's by name, with its own keyword arguments beside the name."""

    default_name: ClassVar[str]

    name: str
    arguments: Mapping[str, object] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        return rules.read_named(value, default_name=cls.default_name)


#: As the name of a sampler or a pruner: the platform picks one.
AUTO = "auto"


class SamplerConfig(_NamedConfig):
    """Which sampler chooses the configurations."""

    default_name: ClassVar[str] = AUTO

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(rules.seed_mistakes(self.arguments.get("seed")))
        return self

    @property
    def seed(self) -> int | None:
        """The study's seed, where the file gives one."""
        seed = self.arguments.get("seed")
        return seed if isinstance(seed, int) else None


class PrunerConfig(_NamedConfig):
    """Which pruner stops weak trials."""

    default_name: ClassVar[str] = AUTO


class StudyConfig(Model):
    """A whole study file. The password that `storage` may hold is in no representation."""

    study: Annotated[str, AfterValidator(rules.check_study_name)]
    #: The URL to connect to: variables filled in, a SQLite path absolute.
    storage: Annotated[str, PlainValidator(_read_storage)] = Field(
        default="", validate_default=True, repr=False
    )
    objectives: Annotated[Mapping[str, Direction], BeforeValidator(rules.read_objectives)] = Field(
        default={"value": Direction.MINIMIZE}
    )
    trial: TrialConfig
    search_space: Annotated[AnySpace | None, _SPACE_SCHEMA] = None
    sampler: SamplerConfig = SamplerConfig(name=AUTO)
    #: Where good configurations are believed to be, by parameter.
    prior: Annotated[Mapping[str, str | int | float | bool], BeforeValidator(read_prior)] | None = (
        None
    )
    #: Earlier studies of the same database, near whose best configurations this one begins.
    transfer: Annotated[tuple[str, ...], BeforeValidator(read_transfer)] = ()
    #: None as `auto`: see tuner/search/defaults.py for what is picked.
    pruner: PrunerConfig | None = None
    devices: Annotated[DeviceRequest, PlainValidator(parse_device_request)] = AutoDevices()
    #: At most so many at a time, the rest is left to others.
    max_gpus: Annotated[_WholeNumber, Field(ge=1)] | None = None
    budget: BudgetConfig = BudgetConfig()
    #: Programs that are told what happened, as argv lists: at the end of the study,
    on_finish: _Hook | None = None
    #: after a trial that is the best now,
    on_best: _Hook | None = None
    #: after a trial that has failed for good.
    on_failure: _Hook | None = None
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    usage: UsageConfig = UsageConfig()
    #: Whether trials go on on more devices once nothing else is left for these to do.
    widen: Annotated[bool, Strict()] = False
    #: None: nobody is run again at the end.
    confirm: ConfirmConfig | None = None

    _source: Source = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Keeps where the study came from; `Any` is pydantic's own declaration."""
        self._source = _reading(context).source

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.trial.metrics is not None:
            refuse(rules.pattern_mistakes(self.trial.metrics.regex, tuple(self.objectives)))
        templates = rules.Templates(command=self.trial.command or (), env=self.trial.env)
        refuse(rules.place_mistakes(templates, self.search_space))
        refuse(prior_mistakes(self.prior or {}, self.search_space, self.sampler.name))
        refuse(transfer_mistakes(self.transfer, self.study, self.sampler.name))
        parallel = self.trial.parallel.value if self.trial.parallel else None
        resources, space = self.trial.resources, self.search_space
        refuse(width_mistakes(resources, space, parallel=None if self.widen else parallel))
        if self.widen:
            is_ddp, command = self.trial.is_ddp, self.trial.command or ()
            refuse(widen_mistakes(resources, space, is_ddp=is_ddp, command=command))
        if self.max_gpus is not None and isinstance(self.devices, CpuSlots):
            problem = "is for GPUs, but devices asks for CPU slots. Remove one of them."
            refuse([Mistake(key="max_gpus", problem=problem)])
        if self.confirm is not None and len(self.objectives) > 1:
            problem = (
                f"is for one objective, but the study has {len(self.objectives)}, so that no trial "
                "is the best. Remove it."
            )
            refuse([Mistake(key="confirm", problem=problem)])
        return self

    @property
    def path(self) -> Path:
        """The study file, absolute."""
        return self._source.path

    @property
    def file(self) -> str:
        """The study file as the user named it, for messages."""
        return self._source.file

    @property
    def folder(self) -> Path:
        """The study file's folder, where relative paths in it begin."""
        return self._source.path.parent

    @property
    def hooks(self) -> dict[str, tuple[str, ...]]:
        """Programs that are told what happened, by their keys in the study file."""
        given = {
            "on_finish": self.on_finish,
            "on_best": self.on_best,
            "on_failure": self.on_failure,
        }
        return {key: argv for key, argv in given.items() if argv is not None}

    @property
    def text(self) -> str:
        """The study file as read, for the record."""
        return self._source.text

    def with_text(self, text: str) -> Self:
        """The same, from a file that reads so."""
        copy = self.model_copy()
        copy._source = replace(self._source, text=text)
        return copy

    @property
    def overrides(self) -> tuple[str, ...]:
        """`key=value` of each `--set`, for the record."""
        return self._source.overrides


_KEYS: Keys = {
    "": StudyConfig.yaml_keys(),
    "trial": TrialConfig.yaml_keys(),
    "trial.resources": ResourcesConfig.yaml_keys(),
    "trial.metrics": MetricsConfig.yaml_keys(),
    "budget": BudgetConfig.yaml_keys(),
    "checkpoints": CheckpointsConfig.yaml_keys(),
    "usage": UsageConfig.yaml_keys(),
    "confirm": ConfirmConfig.yaml_keys(),
}


def validate_study(
    values: Mapping[str, object],
    *,
    source: Source,
    environ: Mapping[str, str],
    origins: Mapping[str, str],
) -> StudyConfig:
    """Checks the values of a study file.

    Args:
        values: The file's mapping, with overrides and flags applied.
        source: Where they came from.
        environ: Fills `${VARIABLE}` in `storage`.
        origins: Keys set on the command line, with the flag to name in a message.

    Raises:
        ConfigError: With a line for each mistake.
    """
    given = {key: value for key, value in values.items() if value is not None}
    try:
        return StudyConfig.model_validate(given, context=_Reading(source=source, environ=environ))
    except ValidationError as error:
        mistakes = to_mistakes(error.errors(include_url=False), _KEYS)
    raise to_error(mistakes, file=source.file, origins=origins)
