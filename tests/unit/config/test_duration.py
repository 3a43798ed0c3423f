"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.notation.duration import parse_duration


@pytest.mark.parametrize(
    ("value", "duration_s"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("1d 2h 3m 4s", 93_784),
        ("45", 45),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_duration_is_in_seconds(value: object, duration_s: float) -> None:
    assert parse_duration(value) == duration_s


@pytest.mark.parametrize("value", ["", "m", "1x", "30m1h", "-3s", 0, -1, True, None, [], "0s"])
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="but must be a duration above 0"):
        parse_duration(value)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_endless_duration_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="but must be a duration above 0"):
        parse_duration(value)


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 100),
    st.booleans(),
)
def test_parts_add_up(days: int, hours: int, minutes: int, seconds: int, is_upper: bool) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    expected_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(text.upper() if is_upper else text) == expected_s
