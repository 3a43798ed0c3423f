"""The measures, as pure functions of what the trials wrote down.

Times are `time.monotonic_ns()` readings. On Linux that is CLOCK_MONOTONIC, one clock for all
processes of a host, so that readings of different trials may be subtracted.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Span:
    """One trial, from the first to the last line of the training function.

    `slot` names the place that it held, or is None where the system has no such notion.
    """

    slot: str | None
    trial: str
    pid: int
    start_ns: int
    end_ns: int


def efficiency(*, trials: int, duration_s: float, slots: int, wall_s: float) -> float:
    """The part of the slots' time that went into training: 1.0 means that nothing was lost."""
    if slots < 1 or wall_s <= 0:
        raise ValueError(f"slots is {slots} and wall_s is {wall_s}: both must be positive.")
    return trials * duration_s / slots / wall_s


def gaps_ms(spans: Sequence[Span]) -> list[float]:
    """Pauses between one trial and the next: per slot where slots are known, else matched."""
    if all(span.slot is not None for span in spans):
        return gaps_by_slot_ms(spans)
    return gaps_matched_ms(spans)


def gaps_by_slot_ms(spans: Iterable[Span]) -> list[float]:
    """Pauses between consecutive trials of the same slot.

    Negative where two trials overlapped on one slot, which a correct system never does.
    """
    by_slot: dict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_ns):
        by_slot[span.slot].append(span)
    return [
        (after.start_ns - before.end_ns) / NS_PER_MS
        for held in by_slot.values()
        for before, after in pairwise(held)
    ]


def gaps_matched_ms(spans: Iterable[Span]) -> list[float]:
    """Pauses where slots are unknown: each start takes the latest earlier end not yet taken.

    Of all assignments that give a pause to as many trials, this one has the smallest sum of
    pauses. Trials that start before any end is free have none.
    """
    ordered = sorted(spans, key=lambda span: span.start_ns)
    free_ends = sorted(span.end_ns for span in ordered)
    gaps = []
    for span in ordered:
        latest = bisect_right(free_ends, span.start_ns) - 1
        if latest >= 0:
            gaps.append((span.start_ns - free_ends.pop(latest)) / NS_PER_MS)
    return gaps


def median_gap_ms(spans: Sequence[Span]) -> float | None:
    """The median pause, or None where no trial followed another."""
    gaps = gaps_ms(spans)
    return median(gaps) if gaps else None


def first_start_s(spans: Iterable[Span], *, began_ns: int) -> float | None:
    """From the command to the first line of the first trial."""
    starts = [span.start_ns for span in spans]
    return (min(starts) - began_ns) / 1e9 if starts else None


def peak_concurrency(spans: Iterable[Span]) -> int:
    """The largest number of trials that ran at one moment."""
    steps: list[tuple[int, int]] = []
    for span in spans:
        steps += [(span.start_ns, +1), (span.end_ns, -1)]
    running = peak = 0
    for _, step in sorted(steps):
        running += step
        peak = max(peak, running)
    return peak
