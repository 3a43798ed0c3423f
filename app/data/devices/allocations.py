"""Allocations of engines as the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuner.queries.allocations import StoredAllocation

#: Maximum number of ended allocations shown, the newest.
_MOST_OVER = 20


def allocation_table(
    allocations: Sequence[StoredAllocation], now: datetime
) -> dict[str, list[object]]:
    """A row for each allocation, open ones first.

    Args:
        allocations: A study's allocations.
        now: The current time.
    """
    over = [each for each in allocations if each.state.is_over][-_MOST_OVER:]
    rows = [*(each for each in allocations if not each.state.is_over), *reversed(over)]
    return {
        "allocation": [f"{each.engine} {each.name}".strip() for each in rows],
        "state": [each.state.value for each in rows],
        "reason": [each.reason for each in rows],
        "node": [each.node or "" for each in rows],
        "GPUs": [each.n_devices for each in rows],
        "trials": [" ".join(map(str, each.trials)) for each in rows],
        "minutes": [_minutes(each, now) for each in rows],
        "minutes left": [_minutes_left(each, now) for each in rows],
        "submitted by": [each.submitted_by for each in rows],
    }


def _minutes(each: StoredAllocation, now: datetime) -> float | None:
    if each.started_at is None:
        return None
    return max(0.0, ((each.ended_at or now) - each.started_at).total_seconds() / 60)


def _minutes_left(each: StoredAllocation, now: datetime) -> float | None:
    if each.deadline is None or each.state.is_over:
        return None
    return max(0.0, (each.deadline - now).total_seconds() / 60)
