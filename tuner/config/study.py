"""study.yaml as immutable, checked values: the only place where pydantic is used.

Reading the file, `--set` and the flags are in `study_file`; checks of this machine are in
`machine_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Self

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
    WithJsonSchema,
    model_validator,
)
from pydantic_core import core_schema

from tuner.config import rules
from tuner.config.mistake_text import Keys, to_mistakes
from tuner.config.mistakes import Mistake, refuse, to_error
from tuner.config.model import Model
from tuner.config.notation.fields import Hook, WholeNumber
from tuner.config.sections.budget import BudgetConfig
from tuner.config.sections.checkpoints import CheckpointsConfig
from tuner.config.sections.confirm import ConfirmConfig
from tuner.config.sections.engine import ENGINE_KEYS, EngineConfig
from tuner.config.sections.prior import Prior, prior_mistakes
from tuner.config.sections.profile import BEST, ProfileConfig
from tuner.config.sections.resources import ResourcesConfig, width_mistakes
from tuner.config.sections.search import AUTO, PrunerConfig, SamplerConfig
from tuner.config.sections.track import Track
from tuner.config.sections.transfer import Transfer, transfer_mistakes
from tuner.config.sections.trial import MetricsConfig, TrialConfig, ValueRule
from tuner.config.sections.usage import UsageConfig
from tuner.config.sections.widen import widen_mistakes
from tuner.config.storage_url import default_storage, resolve_storage
from tuner.devices.request import CpuSlots, DeviceRequest, parse_device_request
from tuner.search_spaces import AnySpace, load_space
from tuner.search_spaces.json_schema import SPACE


class Direction(Enum):
    """Which values of an objective are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a study."""

    #: Absolute.
    path: Path
    #: The path as the user named it, for messages.
    file: str
    text: str
    #: Folder of logs, checkpoints and relative databases, absolute. None: that of the file.
    home: Path | None = None
    #: `key=value` of each `--set`.
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Values that validation needs in addition to the file's."""

    source: Source
    environ: Mapping[str, str]


def _reading(context: object) -> _Reading:
    assert isinstance(context, _Reading), "a StudyConfig is made by validate_study only"
    return context


def _home_of(source: Source) -> Path:
    return source.home or source.path.parent


def _read_space(value: object, info: ValidationInfo) -> AnySpace | None:
    return load_space(value, _reading(info.context).source.path.parent)


def _read_storage(value: object, info: ValidationInfo) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be text, such as sqlite:///study.db.")
    reading = _reading(info.context)
    text = value or default_storage(info.data.get("study", "study"))
    return resolve_storage(text, folder=_home_of(reading.source), environ=reading.environ)


# Not a PlainValidator, for which pydantic would also walk the types inside of a space.
_SPACE_SCHEMA = GetPydanticSchema(
    lambda _source, _handler: core_schema.with_info_plain_validator_function(_read_space),
    lambda _schema, _handler: dict(SPACE),
)
_NAME = {
    "type": "string",
    "pattern": r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$",
    "maxLength": 200,
}
_DEVICES = {
    "title": "auto, all, cpu:N or list of GPUs",
    "anyOf": [
        {"enum": ["auto", "all"]},
        {"type": "string", "pattern": "^cpu:[0-9]{1,6}$"},
        {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 0},
                    {"type": "string", "pattern": "^([Gg][Pp][Uu]|[Mm][Ii][Gg])-[0-9A-Za-z/-]+$"},
                ]
            },
        },
    ],
}


class StudyConfig(Model):
    """A whole study file. The password that `storage` may hold is in no representation."""

    study: Annotated[str, AfterValidator(rules.check_study_name), WithJsonSchema(_NAME)] = Field(
        description="Name of the study in the database. Another start with the same name continues "
        "the study.",
        examples=["digits-mlp"],
    )
    #: The URL to connect to: variables filled in, a SQLite path absolute.
    storage: Annotated[str, PlainValidator(_read_storage), WithJsonSchema({"type": "string"})] = (
        Field(
            default="",
            validate_default=True,
            repr=False,
            description="Database URL in SQLAlchemy's form. `${NAME}` is replaced by an "
            "environment variable, `${file:PATH}` by the content of a file. A relative SQLite path "
            "starts in the folder of the study file. Default: `sqlite:///<study>.db`.",
            examples=["sqlite:///digits.db", "postgresql://tuner:${DB_PASSWORD}@db.example/tuner"],
        )
    )
    objectives: Annotated[Mapping[str, Direction], BeforeValidator(rules.read_objectives)] = Field(
        default={"value": Direction.MINIMIZE},
        description="Values that a trial returns or reports, each with its direction, `minimize` "
        "or `maximize`. One or several; the result of several is a Pareto front.",
        examples=[{"accuracy": "maximize"}, {"accuracy": "maximize", "latency_ms": "minimize"}],
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"not": {"const": rules.STEP}},
        },
    )
    trial: TrialConfig = Field(
        description="What to run for one trial, and its limits.",
        examples=[{"function": "tuner.trials.digits_mlp:train"}],
    )
    search_space: Annotated[AnySpace | None, _SPACE_SCHEMA] = Field(
        default=None,
        description="Parameters to search, and constants. A mapping or a list is a parameter; a "
        "single value, or `{value: ...}`, is a constant. Instead: the path of a YAML file "
        "(`search_spaces/mlp.yaml` comes with the package), or `module:function` of a function "
        "that calls `trial.suggest_*`. Leave it out for an Optuna objective.",
        examples=[{"lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True}, "epochs": 20}],
    )
    sampler: SamplerConfig = Field(
        default=AUTO,
        validate_default=True,
        description="Algorithm that chooses the configurations: a name, or a mapping with the "
        "sampler's own arguments. `auto` picks one that suits the study; `--dry-run` prints which.",
        examples=[{"name": "tpe", "seed": 0}],
    )
    prior: Prior | None = Field(
        default=None,
        description="A guess at a good configuration. It is tried first, and later configurations "
        "are sampled around it while that pays.",
        examples=[{"lr": 0.003, "width": 128}],
        json_schema_extra={"minProperties": 1},
    )
    transfer: Transfer = Field(
        default_factory=tuple,
        description="Earlier studies of the same database. The study starts near their best "
        "configurations.",
        examples=["digits-small", ["digits-1", "digits-2"]],
    )
    #: None means `auto`: see tuner/search/defaults.py for the choice.
    pruner: PrunerConfig | None = Field(
        default=None,
        description="Rule that stops weak trials early: a name, or a mapping with the pruner's own "
        "arguments. `none` trains every trial to its end. `auto` picks one that suits the study; "
        "`--dry-run` prints which.",
        examples=[{"name": "asha", "min_resource": 1, "reduction_factor": 3}],
        json_schema_extra={"default": AUTO},
    )
    devices: Annotated[
        DeviceRequest, PlainValidator(parse_device_request), WithJsonSchema(_DEVICES)
    ] = Field(
        default="auto",
        validate_default=True,
        description="Devices that the study may use. `auto`: every GPU that no other program uses, "
        "or CPU slots on a machine without a GPU. `all`: also GPUs in use. `cpu:4`: four CPU "
        "slots. Or a list of GPU numbers and UUIDs.",
        examples=["cpu:4", [0, 1]],
    )
    max_gpus: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None,
        description="Number of GPUs that the study uses at a time. The others stay free.",
        examples=[4],
    )
    priority: Annotated[
        int,
        PlainValidator(rules.check_priority),
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 100}),
    ] = Field(
        default=50,
        description="Priority among your own studies, 0 to 100, on a machine whose devices are "
        "divided among users (`/etc/tuner/shares.yaml`) and in your queue. A study with a higher "
        "priority gets devices first.",
        examples=[80],
    )
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig,
        description="Limits of the study. The first one that is reached ends it. Default: no "
        "limit, the study ends with Ctrl-C.",
        examples=[{"trials": 64, "time": "30m", "device_hours": 2}],
    )
    on_finish: Hook | None = Field(
        default=None,
        description="Program that runs at the end of the study, as a list of words (no shell). It "
        "reads a JSON object from standard input.",
        examples=[["curl", "-s", "-d", "@-", "https://chat.example/hook"]],
    )
    on_best: Hook | None = Field(
        default=None,
        description="Program that runs when a trial is the new best one. Otherwise like "
        "`on_finish`.",
        examples=[["sh", "-c", "cat >> best.jsonl"]],
    )
    on_failure: Hook | None = Field(
        default=None,
        description="Program that runs when a trial has failed and has no retries left. Otherwise "
        "like `on_finish`.",
        examples=[["python", "notify.py"]],
    )
    on_alert: Hook | None = Field(
        default=None,
        description="Program that runs when the study needs a look: no trial has run for a minute, "
        "a device is idle for a cause that you can remove, or a fifth of the finished trials "
        "failed. Otherwise like `on_finish`.",
        examples=[["python", "notify.py"]],
    )
    track: Track = Field(
        default_factory=dict,
        description="Experiment trackers in which each trial is a run: `tensorboard` with a "
        "folder, `mlflow` with a tracking URI, `wandb` with a project. A mapping "
        "instead of the text holds further arguments of the tracker.",
        examples=[
            {"tensorboard": "runs/", "mlflow": "http://mlflow.example:5000"},
            {"wandb": "digits"},
        ],
    )
    checkpoints: CheckpointsConfig = Field(
        default_factory=CheckpointsConfig,
        description="Which checkpoints stay on disk. Those of unfinished trials and of the best "
        "trial are never removed.",
        examples=[{"keep": "best 3", "newest": 2, "max_disk": "50GiB"}],
    )
    usage: UsageConfig = Field(
        default_factory=UsageConfig,
        description="How the use of the devices is recorded.",
        examples=[{"every": "10s"}],
    )
    widen: Annotated[bool, Strict()] = Field(
        default=False,
        description="Whether running trials are restarted from their checkpoints on more devices "
        "when no trials are queued. For DDP trials that save checkpoints.",
        examples=[True],
    )
    confirm: ConfirmConfig | None = Field(
        default=None,
        description="Runs the best configurations again at the end of the study, with fresh seeds, "
        "so that `tuner best` shows how reliable the winner is. The runs are in addition to the "
        "budget.",
        examples=[{"top": 3, "seeds": 5}],
    )
    engine: EngineConfig | None = Field(
        default=None,
        description="Source of nodes for the study: Slurm, Kubernetes, Ray or ssh. `tuner submit` "
        "asks for them; each node runs the ordinary `python -m tuner.run`.",
        examples=[{"name": "slurm", "nodes": "2..16", "devices": 4, "time": "4h"}],
    )

    _source: Source = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Stores the study's origin; `Any` is pydantic's own declaration."""
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
        if self.trial.value is ValueRule.BEST and len(self.objectives) > 1:
            problem = (
                f"is 'best', but the study has {len(self.objectives)} objectives, so that no step "
                "is the best. Remove it, or return the values from the function."
            )
            refuse([Mistake(key="trial.value", problem=problem)])
        profile = self.trial.profile
        if profile is not None and profile.trial == BEST and len(self.objectives) > 1:
            problem = (
                f"is 'best', but the study has {len(self.objectives)} objectives, so that no trial "
                "is the best. Give the number of a trial."
            )
            refuse([Mistake(key="trial.profile.trial", problem=problem)])
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
        """The study file's folder, the base of its relative paths."""
        return self._source.path.parent

    @property
    def home(self) -> Path:
        """Folder of logs and checkpoints: the study file's, unless the code is a snapshot."""
        return _home_of(self._source)

    @property
    def hooks(self) -> dict[str, tuple[str, ...]]:
        """Programs that receive events, by their keys in the study file."""
        given = {
            "on_finish": self.on_finish,
            "on_best": self.on_best,
            "on_failure": self.on_failure,
            "on_alert": self.on_alert,
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
    "trial.profile": ProfileConfig.yaml_keys(),
    "budget": BudgetConfig.yaml_keys(),
    "checkpoints": CheckpointsConfig.yaml_keys(),
    "usage": UsageConfig.yaml_keys(),
    "confirm": ConfirmConfig.yaml_keys(),
    **ENGINE_KEYS,
}


def validate_study(
    values: Mapping[str, object],
    *,
    source: Source,
    environ: Mapping[str, str],
    origins: Mapping[str, str],
    names: Mapping[str, str] | None = None,
) -> StudyConfig:
    """Checks the values of a study file.

    Args:
        values: The file's mapping, after overrides and flags.
        source: Their origin.
        environ: Values for `${VARIABLE}` in `storage`.
        origins: Keys set on the command line, with the flag for messages.
        names: Keys that are call arguments, with the argument for messages.

    Raises:
        ConfigError: With a line for each mistake.
    """
    given = {key: value for key, value in values.items() if value is not None}
    try:
        return StudyConfig.model_validate(given, context=_Reading(source=source, environ=environ))
    except ValidationError as error:
        mistakes = to_mistakes(error.errors(include_url=False), _KEYS)
    raise to_error(mistakes, file=source.file, origins=origins, names=names)
