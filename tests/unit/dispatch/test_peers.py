"""How often a dispatcher reads what the others have done."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.dispatch.upkeep.peers import Others
from tuner.host.clock import Instant


class Fleet:
    """So many other dispatchers, which live."""

    def __init__(self, n: int) -> None:
        self.others = tuple(f"node-{number}" for number in range(n))
        self.leases = SimpleNamespace(holders={}, look=lambda now: None)
        self.n_looks = 0

    def look(self, now: Instant) -> list[object]:
        self.n_looks += 1
        return []


def at(seconds: float) -> Instant:
    return Instant(utc=datetime(2026, 3, 1, tzinfo=UTC), monotonic_s=seconds)


@pytest.mark.parametrize(
    ("n", "syncs", "looks"), [(0, 60, 12), (25, 60, 12), (50, 30, 6), (100, 18, 6), (1000, 6, 6)]
)
def test_intervals_grow_with_the_number_of_dispatchers(n: int, syncs: int, looks: int) -> None:
    fleet, n_syncs = Fleet(n), 0

    def sync() -> None:
        nonlocal n_syncs
        n_syncs += 1

    search: Any = SimpleNamespace(sync=sync)
    supply: Any = SimpleNamespace(note_leased=lambda holders: None)
    others = Others(search, fleet, supply, print, now=at(0), counts_devices=False)  # type: ignore[arg-type]
    others.poll(at(0))
    assert (n_syncs, fleet.n_looks) == (1, 1), "it looks at once"
    for quarter in range(1, 4 * 60 + 1):
        others.poll(at(quarter / 4))
    assert (n_syncs - 1, fleet.n_looks - 1) == (syncs, looks)
