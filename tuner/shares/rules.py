"""The rules of a machine, `/etc/tuner/shares.yaml`: guaranteed devices per user.

The machine's administrator writes the file. Without it, devices are first come, first served.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError

from tuner.config.mistake_text import to_mistakes
from tuner.config.mistakes import to_error
from tuner.config.model import Model
from tuner.config.notation.duration import parse_duration
from tuner.config.notation.fields import WholeNumber
from tuner.errors import ConfigError
from tuner.search_spaces.strict_yaml import YamlError, read_yaml

DEFAULT_FILE = Path("/etc/tuner/shares.yaml")
ENV_FILE = "TUNER_SHARES"
"""Overrides the rules file, for tests and for users who administer their own machine."""

EVERYBODY = "*"
#: Engines with quotas of their own: within their allocations the rules file is ignored.
_ENGINES = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST")
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"\*|@?[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?")
_GPU = re.compile(r"\d{1,3}|GPU-[0-9A-Za-z-]+")
_HOURS = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)")
_NAMED = 'a user (ann), a user id ("1001"), a group (@vision) or "*" for all others'
_MINUTES_A_DAY = 24 * 60


def _read_amounts(value: object) -> Mapping[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"is {value!r}, but must be a mapping, such as {{ann: 2}}.")
    for name, amount in value.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"has the name {name!r}. Allowed: {_NAMED}.")
        if not _is_number(amount) or amount < 0:
            raise ValueError(
                f"of {name} is {amount!r}, but must be a number of devices, 0 or more."
            )
    return {name: float(amount) for name, amount in value.items()}


def _read_weights(value: object) -> Mapping[str, float]:
    weights = _read_amounts(value)
    for name, weight in weights.items():
        if weight == 0:
            raise ValueError(f"of {name} is 0, but must be above 0. Set max_per_user for less.")
    return weights


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_most(value: object) -> float:
    if not _is_number(value) or float(value) <= 0:  # type: ignore[arg-type]
        raise ValueError(f"is {value!r}, but must be a number of devices above 0.")
    return float(value)  # type: ignore[arg-type]


def _read_gpu_shares(value: object) -> Mapping[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError(f'is {value!r}, but must be a mapping, such as {{"0": 4}}.')
    for name, n_shares in value.items():
        if not _GPU.fullmatch(name):
            raise ValueError(
                f'has the GPU {name!r}. Allowed: its number ("0") or its id ("GPU-...").'
            )
        if isinstance(n_shares, bool) or not isinstance(n_shares, int) or not 2 <= n_shares <= 16:
            raise ValueError(f"of {name} is {n_shares!r}, but must be a whole number from 2 to 16.")
    return dict(value)


def _read_folder(value: object) -> Path:
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise ValueError(f"is {value!r}, but must be an absolute path, such as /var/lib/tuner.")
    return Path(value)


def _check_hours(value: object) -> object:
    for span in value if isinstance(value, Mapping) else ():
        if _minutes(span) is None:
            raise ValueError(
                f"has the hours {span!r}, but must be two times of the day, such as 09:00-18:00."
            )
    return value


Amounts = Annotated[Mapping[str, float], PlainValidator(_read_amounts)]
Weights = Annotated[Mapping[str, float], PlainValidator(_read_weights)]
GpuShares = Annotated[Mapping[str, int], PlainValidator(_read_gpu_shares)]
Most = Annotated[float, PlainValidator(_read_most)]


class HourRules(Model):
    """Rules for some hours of the day; absent keys are unchanged."""

    guaranteed: Amounts | None = None
    weights: Weights | None = None
    max_per_user: Most | None = None


class ShareRules(Model):
    """The rules file."""

    #: GPUs by user or group. The value of a group, or of "*", is shared by its members.
    guaranteed: Amounts = Field(default_factory=dict)
    #: Weight per user for devices beyond the guarantees. Default: 1.
    weights: Weights = Field(default_factory=dict)
    #: Seconds that a trial has to save and end when its device is returned.
    grace: Annotated[float, PlainValidator(parse_duration)] = 60.0
    #: Seconds for which a device is not taken away but for a guarantee.
    hold: Annotated[float, PlainValidator(parse_duration)] = 120.0
    max_per_user: Most | None = None
    #: GPUs divided into this many equal shares, for trials of several users at once.
    gpu_shares: GpuShares = Field(default_factory=dict)
    #: CPU slots of the machine that are divided like GPUs; absent: CPU slots are not divided.
    cpu_slots: Annotated[WholeNumber, Field(ge=1, le=4096)] | None = None
    #: Folder of locks and claims; absent: in the machine's temporary folder.
    folder: Annotated[Path, PlainValidator(_read_folder)] | None = None
    quiet_hours: Annotated[Mapping[str, HourRules], BeforeValidator(_check_hours)] = Field(
        default_factory=dict
    )

    def at(self, now: datetime) -> ShareRules:
        """The rules at a time, in the machine's local time, with its quiet hours applied."""
        minute = now.hour * 60 + now.minute
        for span, other in self.quiet_hours.items():
            if _is_within(minute, _minutes(span)):
                changes = other.model_dump(exclude_none=True)
                return self.model_copy(update=changes | {"quiet_hours": {}})
        return self


def rules_file(environ: Mapping[str, str]) -> Path | None:
    """The file with the rules that hold for a process; None inside an engine's allocation.

    Slurm and Kubernetes have quotas of their own (account and QOS, Kueue's queues).
    """
    if any(environ.get(name) for name in _ENGINES):
        return None
    return Path(environ.get(ENV_FILE) or DEFAULT_FILE)


def read_rules(path: Path) -> ShareRules | None:
    """Reads a rules file; None if it does not exist.

    Raises:
        ConfigError: With a line for each mistake.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}. Let every user read it: chmod 644 {path}"
        raise ConfigError(problem, file=str(path)) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"is larger than {_MAX_BYTES:,} bytes.", file=str(path))
    return parse_rules(content, str(path))


def parse_rules(content: bytes, file: str) -> ShareRules:
    """Parses the content of a rules file.

    Raises:
        ConfigError: With a line for each mistake.
    """
    try:
        document = read_yaml(content.decode("utf-8"))
    except (YamlError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, YamlError) else "not text in UTF-8."
        raise ConfigError(str(reason), file=file) from error
    if not isinstance(document, Mapping):
        problem = "must be a mapping, such as guaranteed: {ann: 2}. Remove the file for no rules."
        raise ConfigError(problem, file=file)
    try:
        return ShareRules.model_validate(document)
    except ValidationError as error:
        keys = {"": ShareRules.yaml_keys()}
        keys |= {f"quiet_hours.{span}": HourRules.yaml_keys() for span in _spans(document)}
        mistakes = to_mistakes(error.errors(include_url=False), keys)
        raise to_error(mistakes, file=file, origins={}) from error


def _spans(document: Mapping[object, object]) -> list[object]:
    hours = document.get("quiet_hours")
    return list(hours) if isinstance(hours, Mapping) else []


def _minutes(span: object) -> tuple[int, int] | None:
    match = _HOURS.fullmatch(span) if isinstance(span, str) else None
    if match is None:
        return None
    begin_h, begin_min, end_h, end_min = map(int, match.groups())
    begin, end = begin_h * 60 + begin_min, end_h * 60 + end_min
    return (begin, end) if max(begin, end) <= _MINUTES_A_DAY and begin != end else None


def _is_within(minute: int, span: tuple[int, int] | None) -> bool:
    if span is None:
        return False
    begin, end = span
    # 22:00-06:00 is over midnight.
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def local_time(utc_s: float) -> datetime:
    """A moment as the clocks of the machine show it."""
    return datetime.fromtimestamp(utc_s)


def own_uid() -> int:
    """The user of this process."""
    return os.getuid()
