"""Allocations of engines as lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuner.domain.allocation import AllocationState
from tuner.queries.allocations import StoredAllocation
from tuner.terminal.tables import table
from tuner.terminal.times import ago, when, zone

_MINUTE_S = 60
_HEADER = ("allocation", "node", "state", "time", "GPUs", "trials", "submitted")
#: Maximum number of failed allocations shown in `tuner status`.
_MOST_FAILED = 3


def allocation_lines(allocations: Sequence[StoredAllocation], now: datetime) -> list[str]:
    """`slurm 4711_3 gpu07 running 1:12 of 4:00, 4 GPUs, trials 17 18 19 22`

    Args:
        allocations: A study's allocations; those that ended without a failure are skipped.
        now: The current time.
    """
    failed = [each for each in allocations if each.state is AllocationState.FAILED]
    shown = [each for each in allocations if not each.state.is_over]
    return [_line(each, now) for each in (*shown, *failed[-_MOST_FAILED:])]


def _line(each: StoredAllocation, now: datetime) -> str:
    place = " ".join(filter(None, (each.engine, each.name or f"number {each.number}", each.node)))
    parts = [" ".join(filter(None, (place, each.state.value, _time(each, now))))]
    if each.n_devices:
        parts.append(f"{each.n_devices} GPU{'s' if each.n_devices > 1 else ''}")
    if each.trials:
        numbers = " ".join(map(str, each.trials))
        parts.append(f"trial{'s' if len(each.trials) > 1 else ''} {numbers}")
    if each.reason:
        parts.append(each.reason)
    return ", ".join(parts)


def _time(each: StoredAllocation, now: datetime) -> str:
    """`1:12 of 4:00`, in hours and minutes; empty while it has not started."""
    if each.started_at is None or each.state.is_over:
        return ""
    passed = _hours((now - each.started_at).total_seconds())
    if each.deadline is None:
        return passed
    return f"{passed} of {_hours((each.deadline - each.started_at).total_seconds())}"


def _hours(seconds: float) -> str:
    minutes = max(0, int(seconds)) // _MINUTE_S
    return f"{minutes // 60}:{minutes % 60:02d}"


def allocations_text(allocations: Sequence[StoredAllocation], study: str, now: datetime) -> str:
    """A table of all allocations of a study, the ended ones included."""
    if not allocations:
        return f"Study {study!r} has no allocations. To ask for some: tuner submit study.yaml"
    header = [*_HEADER[:-1], f"submitted ({zone()})"]
    return table(header, [_row(each, now) for each in allocations])


def _row(each: StoredAllocation, now: datetime) -> tuple[str, ...]:
    state = f"{each.state.value} ({each.reason})" if each.reason else each.state.value
    time = f"ended {ago(each.ended_at, now)}" if each.state.is_over else _time(each, now)
    return (
        f"{each.engine} {each.name}".strip(),
        each.node or "-",
        state,
        time or "-",
        str(each.n_devices),
        " ".join(map(str, each.trials)) or "-",
        f"{when(each.submitted_at)} by {each.submitted_by}",
    )
