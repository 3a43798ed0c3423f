"""`track`: experiment trackers in which each trial is a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from tuner.config.mistakes import Mistake, refuse
from tuner.config.model import Model

_EXAMPLE = "{tensorboard: runs/}"
_TRACK = {
    "title": "mapping of trackers",
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}],
    },
}


class TrackerConfig(Model):
    """Settings of one tracker, as one text or as keyword arguments."""

    #: The first tracker argument, as an alternative to `arguments`.
    target: str | None = None
    arguments: Mapping[str, object] = Field(default_factory=dict)


def read_track(value: object) -> object:
    """Parses `{mlflow: URI, wandb: {project: NAME}}`.

    Raises:
        ValueError: If it is no mapping, or holds neither texts nor mappings.
    """
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"must be a mapping of trackers, such as {_EXAMPLE}.")
    refuse(
        Mistake(
            key=str(name),
            problem=f"is {each!r}, but must be text, such as {_EXAMPLE}, or a mapping.",
        )
        for name, each in value.items()
        if not (isinstance(each, Mapping | TrackerConfig) or (isinstance(each, str) and each))
    )
    return {str(name): _read_one(each) for name, each in value.items()}


def _read_one(value: object) -> object:
    if isinstance(value, str):
        return TrackerConfig(target=value)
    return TrackerConfig(arguments=value) if isinstance(value, Mapping) else value


Track: TypeAlias = Annotated[
    Mapping[str, TrackerConfig], BeforeValidator(read_track), WithJsonSchema(_TRACK)
]
