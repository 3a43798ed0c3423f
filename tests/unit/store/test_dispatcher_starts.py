"""The time in which anybody worked on a study."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tuner.store.records.dispatchers.starts import covered_s

BEGAN = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(0, 10)], 10),
        ([(0, 10), (20, 25)], 15),
        ([(5, 30), (0, 10)], 30),
        ([(0, 30), (5, 10), (20, 30)], 30),
        ([(0, 10), (10, 20)], 20),
        ([(0, 10), (8, 3)], 10),
        ([(30, 20)], 0),
    ],
)
def test_what_overlaps_counts_once(spans: list[tuple[int, int]], seconds: int) -> None:
    instants = [(at(begin), at(end)) for begin, end in spans]
    assert covered_s(instants) == seconds


def at(seconds: int) -> datetime:
    return BEGAN + timedelta(seconds=seconds)
