"""The short form of chaos: a while with everything that can go wrong, and nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.chaos import Chaos, run_chaos
from tests.chaos.table import table_of

pytestmark = pytest.mark.programs

#: What a night has time for, for both; `python -m tests.chaos` is longer, and has the others.
PRUNERS = ("none", "asha")
SECONDS = float(os.environ.get("CHAOS_SECONDS", "180")) / len(PRUNERS)
BY_DAY_S = 40.0
_INTERVAL_S = 5.0
#: What a machine that is busy with other tests does in four intervals.
_INTERVALS_A_BLOW = 4
_START_AND_END_S = 600.0


@pytest.mark.timeout(max(SECONDS, BY_DAY_S) + _START_AND_END_S)
@pytest.mark.parametrize(
    ("pruner", "seconds"),
    [
        pytest.param("asha", BY_DAY_S, id="asha-by-day"),
        *(pytest.param(each, SECONDS, id=each, marks=pytest.mark.nightly) for each in PRUNERS),
    ],
)
def test_nothing_is_lost_in_chaos(tmp_path: Path, pruner: str, seconds: float) -> None:
    chaos = Chaos(
        seconds=seconds,
        seed=7,
        database="postgresql",
        interval_s=_INTERVAL_S,
        pruner=pruner,
    )
    result = run_chaos(chaos, tmp_path)
    print(table_of(result))
    assert result.findings == []
    # How many faults there were depends on the machine; that they differ does not.
    n_struck, kinds = len(result.struck), {each.kind for each in result.struck}
    assert n_struck >= seconds // (_INTERVALS_A_BLOW * _INTERVAL_S), result.struck
    assert len(kinds) >= min(8, n_struck // 2), kinds
