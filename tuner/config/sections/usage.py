"""`usage`: the sampling interval of device telemetry."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from tuner.config.model import Model
from tuner.config.notation.duration import parse_duration
from tuner.config.notation.fields import DURATION

_LEAST_S, _MOST_S = 1.0, 60.0


def read_every(value: object) -> float:
    """Parses the sampling interval in seconds.

    Raises:
        ValueError: If it is invalid, too short or too long; worded to follow the key.
    """
    every_s = parse_duration(value)
    if not _LEAST_S <= every_s <= _MOST_S:
        raise ValueError(f"is {value!r}, but must be from 1s to 1m.")
    return every_s


class UsageConfig(Model):
    """Settings of device telemetry."""

    every_s: Annotated[float, PlainValidator(read_every), WithJsonSchema(DURATION)] = Field(
        default="1s",
        validate_default=True,
        alias="every",
        description="Time between two samples of all devices, from 1s to 1m.",
        examples=["10s"],
    )
