"""The short form of chaos: some minutes with everything that can go wrong, and nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.chaos import Chaos, run_chaos
from tests.chaos.table import table_of

#: What CI has time for, for both; `python -m tests.chaos` is the long form, and has the others.
PRUNERS = ("none", "asha")
SECONDS = float(os.environ.get("CHAOS_SECONDS", "180")) / len(PRUNERS)
_INTERVAL_S = 5.0
_START_AND_END_S = 600.0


@pytest.mark.timeout(SECONDS + _START_AND_END_S)
@pytest.mark.parametrize("pruner", [pytest.param("none", marks=pytest.mark.nightly), "asha"])
def test_nothing_is_lost_in_chaos(tmp_path: Path, pruner: str) -> None:
    chaos = Chaos(
        seconds=SECONDS,
        seed=7,
        database="postgresql",
        interval_s=_INTERVAL_S,
        pruner=pruner,
    )
    result = run_chaos(chaos, tmp_path)
    print(table_of(result))
    assert result.findings == []
    kinds = {each.kind for each in result.struck}
    assert len(kinds) >= min(8, SECONDS // (len(PRUNERS) * _INTERVAL_S)), kinds
