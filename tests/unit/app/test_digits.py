"""Numbers with four significant digits."""

from __future__ import annotations

import pytest

from tuner.app.data.digits import four_digits, number_format, values_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.949681, "0.9497"),
        (1.0, "1"),
        (1024.0, "1024"),
        (12345.6, "12346"),
        (987654321.0, "987654321"),
        (1.5e12, "1.5e+12"),
        (-20000.4, "-20000"),
        (0.000012345, "1.234e-05"),
        (0.0, "0"),
        (float("inf"), "inf"),
    ],
)
def test_four_digits(value: float, text: str) -> None:
    assert four_digits(value) == text


def test_values_have_their_names() -> None:
    assert values_text({"loss": 0.123456, "latency": 3.0}) == "loss 0.1235, latency 3"


def test_columns_of_large_numbers_have_no_exponents() -> None:
    assert number_format("lr", [1e-5, 0.1, None]) == "%.4g"
    assert number_format("duration (s)", [0.001, 86_400.0]) == "%.1f"
    assert number_format("steps", [3, 12_000.0, "text", float("nan")]) == "%.1f"
    assert number_format("decay", [0.001, 20_000.0]) == "%.4g"
