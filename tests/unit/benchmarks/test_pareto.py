"""Decisions at a rung are timed on tables of several kinds."""

from __future__ import annotations

import pytest

from benchmarks.decision_cost.pareto import KINDS, main, time_decisions


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_decisions_are_timed_as_asked_for(kind: str) -> None:
    timed = time_decisions(kind, 30, 3, n_decisions=5, seed=0)
    assert (len(timed.judged), len(timed.promoted)) == (5, 5)


def test_a_row_for_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trials", "10", "20", "--decisions", "2", "--objectives", "2"])
    printed = capsys.readouterr().out
    assert printed.count("\n| ") == 1 + 2 * len(KINDS)
    assert "| 20 | 2 | all on one front |" in printed
