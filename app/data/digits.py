"""Numbers with four significant digits, as pages show them; hover texts have more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def four_digits(value: float) -> str:
    """`0.9497`, `12346`, `1.2e-05`: no exponent below a billion."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def values_text(values: Mapping[str, float]) -> str:
    """`loss 0.12, latency_ms 3.4`"""
    return ", ".join(f"{name} {four_digits(value)}" for name, value in values.items())


def number_format(title: str, cells: Sequence[object]) -> str:
    """The format of a table's column: no exponents for large numbers, such as seconds of hours.

    Args:
        title: Its unit is at the end, in parentheses.
        cells: Numbers, and others that are ignored.
    """
    sizes = [abs(each) for each in cells if isinstance(each, int | float) and math.isfinite(each)]
    largest = max(sizes, default=0.0)
    smallest = min((each for each in sizes if each), default=0.0)
    has_small = smallest < 0.05 and not title.endswith("(s)")
    return "%.1f" if 1e4 <= largest < 1e9 and not has_small else "%.4g"
