"""The summary at the end of a study."""

from __future__ import annotations

from pathlib import Path

from tuner.compose.run_report import summary
from tuner.compose.wiring import StudyEnd
from tuner.config import load_study_file
from tuner.dispatch.terms import Result
from tuner.queries.results.range_ends import RangeEnd
from tuner.search.incumbent import BestTrial

STUDY = "study: small\ntrial: {function: 'm:f'}\nsearch_space: {x: {type: int, low: 0, high: 9}}\n"


def test_best_values_at_an_end_follow_the_best_trial(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    at_end = RangeEnd(parameter="x", is_high=True, bound=9, value=9, n_at_end=8, n_best=10)
    end = StudyEnd(
        result=Result(
            is_interrupted=False, reason="budget reached", n_completed=40, n_pruned=0, n_failed=0
        ),
        best=BestTrial(number=3, values={"value": 0.5}, params={"x": 9}),
        exit_code=0,
        range_ends=(at_end,),
    )
    lines = summary(end, load_study_file(path, environ={}), "tuner run").splitlines()
    assert lines[1:4] == ["best: value 0.5 (trial 3)", "  x: 9", at_end.text]
