"""`trial`: the program of a trial."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from tuner.config import rules
from tuner.config.model import Model
from tuner.config.notation.fields import Command, Duration, Environment, WholeNumber, text
from tuner.config.notation.metric_pattern import expand
from tuner.config.sections import max_log
from tuner.config.sections.profile import ProfileConfig
from tuner.config.sections.resources import ResourcesConfig

_FUNCTION = {
    "title": "module:function",
    **text(
        r"^([^:\s/]+:[^:\s/]+|[^:]+\.py:study\.optimize)$",
        "module:function, such as train:main",
    ),
}


class Parallel(Enum):
    """How one trial uses several devices."""

    DDP = "ddp"
    SINGLE_PROCESS = "single_process"


class ValueRule(Enum):
    """Which report is the value of a trial that completes."""

    LAST = "last"
    BEST = "best"


class OnTimeout(Enum):
    """Outcome of a trial that `timeout` ends."""

    FAIL = "fail"
    COMPLETE = "complete"


class MetricsConfig(Model):
    """How to find a command's metrics in its output."""

    pattern: Annotated[str, AfterValidator(rules.check_pattern)] = Field(
        description="Regular expression (Python) that is searched for in each line of the output. "
        "`{name}` matches a number; the names are the objectives and, optionally, `step`.",
        examples=["step {step} accuracy {accuracy}"],
    )

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern, with a group for each metric that it finds."""
        return re.compile(expand(self.pattern))


class TrialConfig(Model):
    """The program of a trial, and its limits."""

    function: (
        Annotated[str, AfterValidator(rules.check_function), WithJsonSchema(_FUNCTION)] | None
    ) = Field(
        default=None,
        description="Training function as `module:function`. The module is looked up from the "
        "folder of the study file. The function takes the trial, or is an unmodified Optuna "
        "objective. `train.py:study.optimize` runs a file up to this call, and is the function "
        "that the file passes to it. Give either `function` or `command`.",
        examples=["tuner.trials.digits_mlp:train"],
    )
    command: Command | None = Field(
        default=None,
        description="Training program in any language, as a list of words (no shell). `{name}` is "
        "replaced by the value of a parameter. A word whose parameter is absent in a trial is "
        "left out.",
        examples=[["python", "train.py", "--lr={lr}"]],
    )
    resources: ResourcesConfig | None = Field(
        default=None,
        description="Devices of one trial. Default: one GPU, or one CPU slot if the study has no "
        "GPU.",
        examples=[{"gpus": 2}],
    )
    parallel: Parallel | None = Field(
        default=None,
        description="How a trial with several devices is started: `ddp` starts one process per "
        "device, `single_process` one process that uses all of them. Default: `ddp` for a "
        "function, `single_process` for a command.",
        examples=["ddp"],
    )
    timeout_s: Duration | None = Field(
        default=None,
        alias="timeout",
        description="Ends a trial that runs longer.",
        examples=["1h30m"],
    )
    on_timeout: OnTimeout = Field(
        default=OnTimeout.FAIL,
        description="What becomes of a trial that `timeout` ends: `fail`, or `complete` with what "
        "it has reported by then. A trial that has reported nothing fails.",
        examples=["fail"],
    )
    max_steps: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None,
        description="Ends a trial at its first report whose step is at least this, and completes "
        "it. For programs that do not end by themselves. A function must call "
        "`trial.should_prune()`, a command is sent SIGTERM.",
        examples=[200],
    )
    value: ValueRule = Field(
        default=ValueRule.LAST,
        description="Which report is the value of a trial that completes without returning one: "
        "the `last`, or the `best` of all its steps. The value that a function returns always "
        "counts.",
        examples=["best"],
    )
    stall_timeout_s: Duration | None = Field(
        default=None,
        alias="stall_timeout",
        description="Ends a trial that for this long reports nothing and uses neither CPU nor GPU.",
        examples=["10m"],
    )
    retries: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0,
        description="Number of retries after a failure of the training program. Attempts that are "
        "lost with a machine are not counted.",
        examples=[1],
    )
    stop_grace_s: Duration = Field(
        default="10s",
        validate_default=True,
        alias="stop_grace",
        description="Time that a trial has for saving its state when it is asked to stop. After "
        "that it is killed.",
        examples=["30s"],
    )
    max_log_bytes: max_log.MaxLog = Field(
        default=max_log.DEFAULT,
        validate_default=True,
        alias="max_log",
        description="Size of the log of each attempt and rank, at least 1MiB. Of a longer output "
        "the first and the last part are kept.",
        examples=["10MiB"],
    )
    metrics: MetricsConfig | None = Field(
        default=None,
        description="How the metrics of a command are found in its output. Default: one JSON "
        "object per line.",
        examples=[{"pattern": "accuracy {accuracy}"}],
    )
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of each trial. `{name}` is replaced as in `command`. "
        "The values are not stored in the database.",
        examples=[{"OMP_NUM_THREADS": "2", "RUN_NAME": "trial-{trial_number}"}],
    )

    profile: ProfileConfig | None = Field(
        default=None,
        description="Records a trace of the torch profiler into the folder of one trial. The "
        "program must report through the trial object (a function, or a script with "
        "`tuner.current`).",
        examples=[{"trial": "best", "steps": [10, 20]}],
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check_trial(
            has_function=self.function is not None,
            has_command=self.command is not None,
            has_metrics=self.metrics is not None,
            completes_on_timeout=self.on_timeout is OnTimeout.COMPLETE,
            has_timeout=self.timeout_s is not None,
        )
        return self

    @property
    def is_ddp(self) -> bool:
        """Whether a wide trial has one rank per device: functions by default."""
        if self.parallel is None:
            return self.function is not None
        return self.parallel is Parallel.DDP
