"""The benchmark of freeze-thaw's decisions."""

from __future__ import annotations

import pytest

from benchmarks.decision_cost.freeze_thaw import Waiting, main, time_decisions


#: By day: `test_its_table`, and tests/contract/search for the decisions themselves.
@pytest.mark.nightly
def test_each_decision_is_timed_and_the_first_of_a_start_apart() -> None:
    timed = time_decisions(12, n_decisions=3, n_repeats=2)
    assert (len(timed.fitted), len(timed.others)) == (2, 6)
    assert all(one.wall_ms > 0 for one in [*timed.fitted, *timed.others])


def test_whoever_waits_can_be_chosen() -> None:
    waiting = Waiting(12, seed=0)
    assert next(waiting.table.promotable(), None) is not None


def test_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trials", "10", "--decisions", "1", "--repeats", "1"])
    assert "| 10 | " in capsys.readouterr().out
