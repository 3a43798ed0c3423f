"""What is made of the trials of a study that is watched."""

from __future__ import annotations

from benchmarks.common.measures import Span
from benchmarks.dashboard.watched import Watched, seconds_between_ends, table

S = 1_000_000_000


def span(slot: str, end_s: int) -> Span:
    return Span(slot=slot, trial="x", pid=1, start_ns=(end_s - 2) * S, end_ns=end_s * S)


def test_pairs_are_of_one_slot() -> None:
    spans = [span("b", 11), span("a", 10), span("a", 12), span("b", 14), span("a", 15)]
    assert sorted(seconds_between_ends(spans)) == [2.0, 3.0, 3.0]


def test_what_remains_is_told_by_medians() -> None:
    found = [
        Watched(n_browsers=n_browsers, trials_per_s=rate, n_pairs=9, load_before=0.0)
        for n_browsers, rate in ((0, 4.0), (5, 3.0), (0, 4.0), (5, 3.8), (0, 2.0), (5, 3.9))
    ]
    assert table(found).splitlines()[2:] == [
        "| 0 | 4.00 | 2.00 to 4.00 | 1 |",
        "| 5 | 3.80 | 3.00 to 3.90 | 0.950 |",
    ]
