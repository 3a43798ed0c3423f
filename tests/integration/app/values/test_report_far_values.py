"""A figure of the report says how many values it does not show at first."""

from __future__ import annotations

from pathlib import Path

import optuna

from tuner.app.report import study_figures
from tuner.queries.locate import StoredStudy

N_TRIALS, N_FAR = 20, 3


def test_far_values_are_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'far.db'}"
    study = optuna.create_study(storage=url, study_name="far")
    for number in range(N_TRIALS):
        value = 1e6 if number < N_FAR else 1.0 + number / 100
        study.add_trial(optuna.trial.create_trial(value=value))
    figures = study_figures(url, StoredStudy(id=1, name="far"))
    figure = figures["Convergence of value against trials"]
    low, high = figure.layout.yaxis.range
    drawn = [y for trace in figure.data if trace.mode == "markers" for y in trace.y]
    assert len(drawn) == N_TRIALS
    n_outside = sum(not low <= y <= high for y in drawn)
    assert N_FAR <= n_outside <= N_TRIALS // 2, "the better half is shown"
    (note,) = [each.text for each in figure.layout.annotations if "zoom out" in each.text]
    assert note == f"{n_outside} values are outside of the picture: zoom out"
