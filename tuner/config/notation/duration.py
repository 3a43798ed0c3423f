"""Durations as users write them: `30m`, `1h30m`, `90s`, `2d`, or a plain number of seconds."""

from __future__ import annotations

import math
import re

from tuner.search_spaces.space import is_number

_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)"
_TEXT = re.compile(
    rf"(?:{_PART}d)?\s*(?:{_PART}h)?\s*(?:{_PART}m)?\s*(?:{_PART}s?)?", re.IGNORECASE
)
#: Blanks that could be of several parts take a time that grows with the cube of their number.
_MAX_LENGTH = 100
_ALLOWED = "a duration above 0, such as 90s, 30m, 1h30m or 2d, or a number of seconds"


def parse_duration(value: object) -> float:
    """Parses a duration in seconds.

    Raises:
        ValueError: If it is invalid or not above 0; worded to follow the key.
    """
    duration_s = _parse_text(value) if isinstance(value, str) else value
    if not is_number(duration_s) or not math.isfinite(duration_s) or duration_s <= 0:
        raise ValueError(f"is {value!r}, but must be {_ALLOWED}.")
    return float(duration_s)


def _parse_text(text: str) -> float | None:
    match = _TEXT.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if match is None or not any(match.groups()):
        return None
    parts = zip(match.groups(), _SECONDS.values(), strict=True)
    return sum(float(number) * unit_s for number, unit_s in parts if number)
