"""A launch request as data: a dry run prints it, a launcher executes it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Assign
from tuner.search_spaces.values import ParamValue, format_value

#: Characters that an environment variable's name may not have.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")

ENV_CHANNEL = "TUNER_CHANNEL"
ENV_TOKEN = "TUNER_TOKEN"
#: Value of `OPENMP_VARIABLES` in a worker. In the fork server they are 1: otherwise importing torch
#: starts OpenMP's threads there, which a fork does not have and GNU's OpenMP then waits for.
ENV_OPENMP_THREADS = "TUNER_OPENMP_THREADS"
#: Torch takes the larger one, so that both count.
OPENMP_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
ENV_ATTEMPT = "TUNER_ATTEMPT"
ENV_STORAGE = "TUNER_STORAGE"
ENV_STUDY = "TUNER_STUDY"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProgram:
    """A function that takes the trial; `space` is called with the trial before it."""

    module: str
    function: str
    #: With `{param}` places.
    environment: Mapping[str, str] = field(default_factory=dict)
    space: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgram:
    """Any program: words and environment with `{param}` places, metrics read from its output."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: A regular expression with a group for each objective, and `step`; None reads JSON lines.
    pattern: str | None = None
    space: str | None = None


Program: TypeAlias = FunctionProgram | CommandProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One process to start for an attempt; a wide one has a request for each of its ranks."""

    attempt_id: AttemptId
    program: Program
    #: The trial of the worker's slot.
    assign: Assign
    #: Working folder of the program.
    folder: str
    log_path: str
    #: Added to the inherited environment: visible devices, and the dispatcher's address.
    environment: Mapping[str, str]
    #: Compute threads of the program; None leaves the framework's default.
    n_threads: int | None = None
    rank: int = 0
    #: CPU cores to run on, those nearest to its devices; empty for all.
    cores: tuple[int, ...] = ()
    #: Maximum fraction of its GPU's memory for the program, 0 to 1; None for all of it.
    memory_fraction: float | None = None

    def as_data(self) -> dict[str, object]:
        """Plain values for a dry run; the token, a secret of one study, is left out."""
        data = dataclasses.asdict(self)
        data["program"] = {"kind": type(self.program).__name__, **data["program"]}
        data["environment"] = {k: v for k, v in self.environment.items() if k != ENV_TOKEN}
        return data


def trial_environment(
    params: Mapping[str, ParamValue],
    *,
    number: int,
    attempt_number: int,
    seed: int,
    checkpoint_dir: str,
) -> dict[str, str]:
    """A trial as environment variables, for programs that do not import the tuner."""
    named = {
        f"TUNER_PARAM_{_NOT_IN_NAMES.sub('_', name).upper()}": format_value(value)
        for name, value in params.items()
    }
    return named | {
        "TUNER_TRIAL_NUMBER": str(number),
        "TUNER_ATTEMPT_NUMBER": str(attempt_number),
        "TUNER_SEED": str(seed),
        "TUNER_CHECKPOINT_DIR": checkpoint_dir,
    }
