"""`{name}` places in a metrics pattern: a number in any usual form.

Pure text. `accuracy: {accuracy}` is easier to write than a group that takes every number, and does
not stop in the middle of `1.67e-06`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:inf(?:inity)?|nan)\b)"
"""Integers, decimals, exponents, infinity and NaN, as `float` reads them."""

#: An escaped brace and a character by its name (`\\N{DASH}`) are regular expressions already; so
#: is a count such as `{3}`.
_PLACE = re.compile(r"(?<!\\)(?<!\\N)\{([A-Za-z_]\w*)\}")

_EXPANDED = re.compile(rf"\(\?P<(\w+)>{re.escape(NUMBER)}\)")
#: A place, an escape with its repetition, or a character with its.
_PART = re.compile(r"\{[A-Za-z_]\w*\}|(?:\\.|[^\\])[*+?]*", re.DOTALL)
_A_WORD = re.compile(r"[A-Za-z]{2}")
_LONGEST = 200


def expand(pattern: str) -> str:
    """A metrics pattern as a plain regular expression: each `{name}` is a group that is a number.

    Args:
        pattern: As the study file has it.
    """
    return _PLACE.sub(lambda place: f"(?P<{place[1]}>{NUMBER})", pattern)


def near_miss(pattern: str, lines: Sequence[str]) -> str:
    """Explains why a pattern does not match the most similar line.

    Args:
        pattern: Written or expanded.
        lines: Lines that it does not match.

    Returns:
        A sentence; empty if no line has a word of the pattern's beginning.
    """
    if any(re.search(expand(pattern), line, re.IGNORECASE) for line in lines):
        return "Upper and lower case differ: write (?i) at the beginning of the pattern."
    parts = _PART.findall(_EXPANDED.sub(r"{\1}", pattern)[:_LONGEST])
    for end in range(len(parts) - 1, 0, -1):
        beginning = "".join(parts[:end])
        if not _A_WORD.search(_PLACE.sub("", beginning)):
            return ""
        if beginning[-1].isalnum() and parts[end][0].isalnum():
            continue  # in the middle of a word
        try:
            found = re.compile(expand(beginning))
        except re.error:
            continue
        for line in reversed(lines):
            if found.search(line):
                rest = parts[end] if _PLACE.match(parts[end]) else "".join(parts[end:])
                return (
                    f"{line.strip()!r} has its beginning, {beginning!r}, but not its continuation, "
                    f"{rest!r}."
                )
    return ""
