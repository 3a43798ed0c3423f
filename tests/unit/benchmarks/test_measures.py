"""The measures are arithmetic on what the trials wrote down."""

import pytest

from benchmarks.common.measures import (
    NS_PER_MS,
    Span,
    efficiency,
    first_start_s,
    gaps_by_slot_ms,
    gaps_matched_ms,
    gaps_ms,
    median_gap_ms,
    peak_concurrency,
)


def span(start_ms: int, end_ms: int, slot: str | None = None) -> Span:
    return Span(
        slot=slot,
        trial=f"{start_ms}",
        pid=1,
        start_ns=start_ms * NS_PER_MS,
        end_ns=end_ms * NS_PER_MS,
    )


def test_efficiency_is_one_when_no_time_is_lost() -> None:
    assert efficiency(trials=64, duration_s=2.0, slots=8, wall_s=16.0) == 1.0


def test_efficiency_counts_all_of_the_wall_time() -> None:
    assert efficiency(trials=64, duration_s=2.0, slots=8, wall_s=20.0) == pytest.approx(0.8)


@pytest.mark.parametrize(("slots", "wall_s"), [(0, 1.0), (8, 0.0)])
def test_efficiency_refuses_what_has_no_meaning(slots: int, wall_s: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        efficiency(trials=1, duration_s=1.0, slots=slots, wall_s=wall_s)


def test_gaps_by_slot_pair_consecutive_trials_of_the_same_slot() -> None:
    spans = [span(130, 200, "b"), span(0, 100, "a"), span(0, 90, "b"), span(110, 200, "a")]
    assert sorted(gaps_by_slot_ms(spans)) == [10.0, 40.0]


def test_overlap_on_one_slot_shows_as_a_negative_gap() -> None:
    assert gaps_by_slot_ms([span(0, 100, "a"), span(90, 200, "a")]) == [-10.0]


def test_matched_gaps_take_the_latest_earlier_end_once() -> None:
    spans = [span(0, 90), span(0, 100), span(110, 200), span(120, 210)]
    assert gaps_matched_ms(spans) == [10.0, 30.0]


def test_matched_gaps_skip_trials_that_start_before_any_end() -> None:
    assert gaps_matched_ms([span(0, 100), span(1, 101), span(100, 200)]) == [0.0]


def test_matched_gaps_leave_trials_without_a_free_end_out() -> None:
    assert gaps_matched_ms([span(0, 100), span(105, 200), span(110, 210)]) == [5.0]


def test_one_unknown_slot_makes_all_gaps_matched() -> None:
    spans = [span(0, 100, "a"), span(110, 200, None)]
    assert gaps_ms(spans) == [10.0]
    assert gaps_ms([span(0, 100, "a"), span(110, 200, "b")]) == []


def test_median_gap_needs_two_trials_in_a_row() -> None:
    assert median_gap_ms([span(0, 100, "a")]) is None
    spans = [span(0, 100, "a"), span(110, 200, "a"), span(230, 300, "a"), span(320, 400, "a")]
    assert median_gap_ms(spans) == 20.0


def test_first_start_counts_from_the_command() -> None:
    assert first_start_s([span(2500, 3000), span(1500, 2000)], began_ns=0) == 1.5
    assert first_start_s([], began_ns=0) is None


def test_peak_concurrency_counts_trials_that_overlap() -> None:
    assert peak_concurrency([span(0, 100), span(50, 150), span(100, 200)]) == 2
    assert peak_concurrency([]) == 0
