"""The protocol between workers and the dispatcher, one JSON object per line.

The protocol is per trial: a worker sends `Hello` for an attempt, receives its `Assign`, sends
`Report`s, receives a `Verdict` for each, and sends `Finished`. Only two requests wait for a reply:
for a parameter that the study file does not declare (`Suggest`), and for the study's database
(`AskStudy`). A worker with several slots would use the same messages, once per attempt.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, get_args

from tuner.domain.attempt import AttemptId, Cause, Outcome
from tuner.errors import TunerError

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
"""Values in a message or in a trial's parameters."""

#: Attribute of a trial: parameters that its define-by-run space returned in addition to suggested
#: ones.
RETURNED_PARAMS_ATTR = "tuner:returned_params"

MAX_LINE_BYTES = 16 * 1024 * 1024
#: Maximum length of a metric's name: the size of its column.
MAX_METRIC_NAME = 255
#: Maximum length of the name of an attribute, a constraint or a parameter. Optuna's columns hold
#: 512, and Optuna adds a prefix to some.
MAX_KEY = 480


def name_problem(name: str, limit: int) -> str:
    """Why a name cannot be stored in every database; empty if it can.

    Args:
        name: Name of a metric, an attribute, a constraint or a parameter.
        limit: `MAX_METRIC_NAME` or `MAX_KEY`.
    """
    shown = repr(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}...")
    if len(name) > limit:
        return f"the name {shown} has {len(name)} characters, but at most {limit} can be stored"
    if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        return f"the name {shown} has a character that no database stores (NUL or a surrogate)"
    return ""


_SHOWN_CHARACTERS = 40


class MalformedMessage(TunerError):
    """The other end of a channel sent something that is not a message."""


class Action(Enum):
    """Actions that a verdict requests."""

    CONTINUE = "continue"
    PRUNE = "prune"
    PAUSE = "pause"
    #: It has reached the last step that the study file allows, and completes.
    COMPLETE = "complete"
    STOP = "stop"


ENDS_EARLY = (Action.PRUNE, Action.PAUSE, Action.COMPLETE)
"""Verdicts on a report that end an attempt. A program takes all alike: it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A program's first message for an attempt; the token authenticates it."""

    attempt_id: AttemptId
    token: str
    pid: int
    #: The worker itself, or a program that it started (`tuner.current()` in a script).
    is_worker: bool = True
    #: Among the processes that evaluate the trial together.
    rank: int = 0
    #: When it was sent (`clock.since_boot_s`); the dispatcher may read it much later.
    since_boot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The trial that a program evaluates."""

    attempt_id: AttemptId
    trial_number: int
    attempt_number: int
    params: Mapping[str, Json]
    seed: int
    checkpoint_dir: str
    objectives: tuple[str, ...]
    #: Labels of the devices: `GPU 0`, `cpu:3`.
    devices: tuple[str, ...]
    #: Checkpoints of one trial.
    n_newest_kept: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Values of one step: the objectives by name, and extra metrics for curves."""

    attempt_id: AttemptId
    step: int
    values: Mapping[str, float]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The dispatcher's reply to the report of a step; `step` -1 requests an end at any step."""

    attempt_id: AttemptId
    step: int
    action: Action
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Rank 0's decision on its verdict, for the other ranks: all act alike at the same point.

    Other ranks need not report, so points are counted: the n-th time that a program checks. A
    program with one rank only acknowledges that it must end, and so does the process that ends a
    command.
    """

    attempt_id: AttemptId
    #: From 1; 0 if no other rank waits for it.
    count: int
    #: The step that rank 0 reported last; -1 before its first report.
    step: int
    action: Action
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggest:
    """Requests a parameter; `distribution` is Optuna's JSON for it."""

    attempt_id: AttemptId
    name: str
    distribution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested:
    """The value of a parameter, or an error."""

    attempt_id: AttemptId
    name: str
    value: Json = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeInCode:
    """The range in code of a parameter that has its value from the study file."""

    attempt_id: AttemptId
    name: str
    #: Optuna's JSON.
    distribution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStudy:
    """Requests the study's database, for `trial.study`."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlace:
    """The study's database. Sent only to programs that request it."""

    attempt_id: AttemptId
    study: str
    #: URL of the database, which may hold a password; empty if the study is in memory only.
    storage: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStudy:
    """`trial.study.stop()`: no more trials start, running trials finish."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesDamaged:
    """Checkpoints that a program found damaged when it loaded its state."""

    attempt_id: AttemptId
    paths: tuple[str, ...]
    #: Step of the older checkpoint that was loaded instead; None if training starts from the
    #: beginning.
    resumed_from: int | None


class RemarkTopic(Enum):
    """The topic of a remark; each is shown once."""

    CUT_NUMBER = "cut_number"
    FRACTIONAL_STEPS = "fractional_steps"
    REPEATED_STEPS = "repeated_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A remark on a program's output to show."""

    attempt_id: AttemptId
    topic: RemarkTopic
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttribute:
    """An attribute of the trial, as in `optuna.Trial.set_user_attr`."""

    attempt_id: AttemptId
    key: str
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConstraint:
    """A constraint of the trial, as in `optuna.Trial.set_constraint`: above 0 it is violated."""

    attempt_id: AttemptId
    key: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A rank of the program has ended by itself; its process exits next."""

    attempt_id: AttemptId
    outcome: Outcome
    cause: Cause | None = None
    detail: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    #: Whether the values are the program's result, not its last report.
    is_result: bool = False
    rank: int = 0
    #: Peak memory on any one of its GPUs, if its framework reports it.
    peak_memory_bytes: int | None = None
    #: When it was sent, as in `Hello`.
    since_boot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationRequested:
    """A process of the attempt got a SIGTERM that the dispatcher did not send."""

    attempt_id: AttemptId
    rank: int = 0


FromWorker: TypeAlias = (
    Hello
    | Report
    | Decided
    | Suggest
    | RangeInCode
    | AskStudy
    | StopStudy
    | StatesDamaged
    | Remark
    | SetAttribute
    | SetConstraint
    | Finished
    | TerminationRequested
)
ToWorker: TypeAlias = Assign | Verdict | Decided | Suggested | StudyPlace
Message: TypeAlias = FromWorker | ToWorker

_MESSAGES: Mapping[str, Callable[..., Message]] = {
    cls.__name__: cls
    for cls in (
        Hello,
        Assign,
        Report,
        Verdict,
        Decided,
        Suggest,
        Suggested,
        RangeInCode,
        AskStudy,
        StudyPlace,
        StopStudy,
        StatesDamaged,
        Remark,
        SetAttribute,
        SetConstraint,
        Finished,
        TerminationRequested,
    )
}
# Both made once: a report and its verdict are the dispatcher's most frequent work.
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in get_args(Message)
}
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_ENUMS: Mapping[str, type[Enum]] = {
    "outcome": Outcome,
    "cause": Cause,
    "action": Action,
    "topic": RemarkTopic,
}
_AS_THEY_ARE = frozenset({str, int, float, bool, dict, list, tuple})
_TUPLES = frozenset({"objectives", "devices", "paths"})
#: A program that sends invalid messages must lose only its own connection.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "attempt_id": str,
    "token": str,
    "step": int,
    "rank": int,
    "is_result": bool,
    "count": int,
    "name": str,
    "key": str,
    "distribution": str,
    "study": str,
    "storage": str,
    "detail": str,
    "text": str,
    "since_boot_s": (float, type(None)),
    "resumed_from": (int, type(None)),
    "paths": list,
}
_NUMBERS_BY_NAME = frozenset({"values", "metrics"})


def encode(message: Message) -> bytes:
    """One line of UTF-8 JSON. NaN and infinity are written as Python's json does."""
    kind = type(message)
    content = {name: _plain(getattr(message, name)) for name in _FIELDS[kind]}
    return _ENCODER.encode([kind.__name__, content]).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Parses a message written by `encode`.

    Raises:
        MalformedMessage: If the line is no such message.
    """
    try:
        name, content = json.loads(line)
        return _MESSAGES[name](**{key: _rich(key, value) for key, value in content.items()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedMessage(f"This is not a message of the tuner: {line[:200]!r}") from error


def _plain(value: object) -> object:
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    return dict(value) if isinstance(value, Mapping) else value


def _rich(key: str, value: object) -> object:
    if not isinstance(value, _KINDS.get(key, object)):
        raise TypeError(f"{key} is {value!r}")
    if key in _NUMBERS_BY_NAME:
        return _numbers(value)
    if key in _ENUMS and value is not None:
        return _ENUMS[key](value)
    return tuple(value) if key in _TUPLES and isinstance(value, list) else value


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or not all(isinstance(v, (int, float)) for v in value.values()):
        raise TypeError(f"{value!r} are not numbers by name")
    return value
