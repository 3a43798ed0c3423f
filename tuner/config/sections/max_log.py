"""`trial.max_log`: how much of an attempt's output is kept."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import PlainValidator, WithJsonSchema

from tuner.config.notation.fields import SIZE
from tuner.config.notation.size import parse_size

DEFAULT = "100MiB"
_LEAST_BYTES = 1024 * 1024


def read_max_log(value: object) -> int:
    """Parses a size in bytes.

    Raises:
        ValueError: If it is invalid, or too small for a traceback; worded to follow the key.
    """
    size_bytes = parse_size(value)
    if size_bytes < _LEAST_BYTES:
        raise ValueError(f"is {value!r}, but must be 1MiB or more.")
    return size_bytes


MaxLog: TypeAlias = Annotated[int, PlainValidator(read_max_log), WithJsonSchema(SIZE)]
