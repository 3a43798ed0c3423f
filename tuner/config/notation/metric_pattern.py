"""`{name}` places in a metrics pattern: a number in any usual form.

Pure text. `accuracy: {accuracy}` is easier to write than a group that takes every number, and does
not stop in the middle of `1.67e-06`.
"""

from __future__ import annotations

import re

NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:inf(?:inity)?|nan)\b)"
"""Integers, decimals, exponents, infinity and NaN, as `float` reads them."""

#: An escaped brace and a character by its name (`\\N{DASH}`) are regular expressions already; so
#: is a count such as `{3}`.
_PLACE = re.compile(r"(?<!\\)(?<!\\N)\{([A-Za-z_]\w*)\}")


def expand(pattern: str) -> str:
    """A metrics pattern as a plain regular expression: each `{name}` is a group that is a number.

    Args:
        pattern: As the study file has it.
    """
    return _PLACE.sub(lambda place: f"(?P<{place[1]}>{NUMBER})", pattern)
