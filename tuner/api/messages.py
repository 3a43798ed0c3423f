"""Messages between the two processes of a study, one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from tuner.search_spaces import ParamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the calling process: a study file, or the text of one.

    It is sent through a pipe and not a file: a storage's URL may contain a password.
    """

    #: The study file as the caller named it; for a text, the name of the call.
    file: str
    #: Text of the study file; None if `file` is a file.
    text: str | None = None
    #: Base of relative paths in `text`.
    folder: str = ""
    overrides: tuple[str, ...] = ()
    study: str | None = None
    trials: int | None = None
    #: Module search path of the calling process.
    import_path: tuple[str, ...] = ()
    #: Whether the child draws its progress on the terminal that both have.
    draws: bool = False
    #: Whether the caller draws progress, so that lines contain only notes.
    is_drawn: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Call:
        data = json.loads(line)
        lists = {name: tuple(data[name]) for name in ("overrides", "import_path")}
        return Call(**{**data, **lists})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line to show."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Everything was found right; trials start now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """An attempt has ended. `values` is empty if the trial has no result."""

    number: int
    outcome: str
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRow:
    """A running trial."""

    devices: str
    number: int
    elapsed_s: float
    step: int | None
    values: Mapping[str, float]
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the study."""

    n_begun: int
    n_trials: int | None
    n_completed: int
    n_pruned: int
    n_failed: int
    elapsed_s: float
    left_s: float | None
    is_stopping: bool
    best_number: int | None
    best_values: Mapping[str, float]
    best_params: Mapping[str, ParamValue]
    running: tuple[RunningRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The study has ended: its budget is reached, or it was stopped."""

    exit_code: int
    #: Result and best configuration, as lines to show.
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An error ended the study, or it never started."""

    #: Name of a class in `tuner.errors`.
    error: str
    message: str
    exit_code: int
    key: str | None = None


Message: TypeAlias = Line | Begun | TrialEnded | Progress | Finished | Refused
_KINDS = {each.__name__: each for each in (Line, Begun, TrialEnded, Progress, Finished, Refused)}


def encode(message: Message) -> bytes:
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    data: dict[str, Any] = json.loads(line)
    made = _KINDS[data.pop("kind")]
    if made is Progress:
        data["running"] = tuple(RunningRow(**row) for row in data["running"])
    return made(**data)
