"""The short form of chaos: some minutes with everything that can go wrong, and nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.chaos import Chaos, run_chaos
from tests.chaos.table import table_of

#: What CI has time for, for both kinds of study; `python -m tests.chaos` is the long form.
SECONDS = float(os.environ.get("CHAOS_SECONDS", "180")) / 2
_INTERVAL_S = 5.0
_START_AND_END_S = 600.0


@pytest.mark.timeout(SECONDS + _START_AND_END_S)
@pytest.mark.parametrize("promotes", [False, True], ids=["to-the-end", "paused-and-resumed"])
def test_nothing_is_lost_in_chaos(tmp_path: Path, promotes: bool) -> None:
    chaos = Chaos(
        seconds=SECONDS,
        seed=7,
        database="postgresql",
        interval_s=_INTERVAL_S,
        promotes=promotes,
    )
    result = run_chaos(chaos, tmp_path)
    print(table_of(result))
    assert result.findings == []
    kinds = {each.kind for each in result.struck}
    assert len(kinds) >= min(8, SECONDS // (2 * _INTERVAL_S)), kinds
