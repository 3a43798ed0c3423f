"""`checkpoints`: what a study keeps of the states that its trials save."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import Field, PlainValidator, Strict

from tuner.config.model import Model
from tuner.config.size import parse_size

_BEST = re.compile(r"best\s+([1-9]\d*)")
_ALL = "all"
_WholeNumber: TypeAlias = Annotated[int, Strict()]


def read_keep(value: object) -> int | None:
    """`all` is None, `best 3` is 3.

    Raises:
        ValueError: If it is neither; to be read after the key.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text == _ALL:
        return None
    best = _BEST.fullmatch(text)
    if best is None:
        hint = f" Write: best {value}." if type(value) is int and value > 0 else ""
        raise ValueError(
            f"is {value!r}, but must be 'all', or 'best' and a number of trials, such as "
            f"best 3.{hint}"
        )
    return int(best[1])


class CheckpointsConfig(Model):
    """Which checkpoints are kept; those of unfinished trials and of the best are in any case."""

    #: Completed trials that keep theirs, the best; None: every trial keeps them.
    n_best: Annotated[int | None, PlainValidator(read_keep)] = Field(default=None, alias="keep")
    #: Of one trial.
    newest: Annotated[_WholeNumber, Field(ge=1)] = 2
    #: Of all trials together; None: no limit.
    max_disk_bytes: Annotated[int, PlainValidator(parse_size)] | None = Field(
        default=None, alias="max_disk"
    )
