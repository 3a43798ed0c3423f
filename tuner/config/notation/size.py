"""Sizes of memory and disks as users write them: `40GiB`, `512 MB`, or a plain number of bytes."""

from __future__ import annotations

import math
import re

from tuner.search_spaces.space import is_number

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4} | {
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
    "ti": 1024**4,
}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Parses a size in bytes.

    Raises:
        ValueError: If it is invalid or not above 0; worded to follow the key.
    """
    size_bytes = _parse_text(value) if isinstance(value, str) else value
    if not is_number(size_bytes) or not math.isfinite(size_bytes) or size_bytes < 1:
        raise ValueError(f"is {value!r}, but must be a size, such as 8GiB or 512MiB.")
    return int(size_bytes)


def _parse_text(text: str) -> float | None:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1]) * _UNITS[(match[2] or "").lower()]
