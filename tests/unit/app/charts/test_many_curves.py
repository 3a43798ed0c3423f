"""Which curves are drawn, how they are thinned out, and where rungs are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.app.columns import NAN, trials
from tuner.app.charts.many_curves import CurveAxes, many_curves_figure
from tuner.app.data.convergence.rungs import pruner_in, rungs_until
from tuner.app.data.trials.curves import MAX_CURVES, Curve, pick, thinned

AXES = CurveAxes(name="loss", log_x=False, log_y=False)


def test_a_short_curve_stays_whole() -> None:
    curve = thinned(np.arange(5.0), np.array([3.0, NAN, 2.0, 1.0, 0.0]))
    assert curve.steps.tolist() == [0.0, 2.0, 3.0, 4.0]


def test_a_long_curve_keeps_its_ends_and_its_peaks() -> None:
    values = np.zeros(10_000)
    values[4_321], values[8_765] = 7.0, -3.0
    curve = thinned(np.arange(10_000.0), values)
    assert len(curve.steps) < 50
    assert {0.0, 4_321.0, 8_765.0, 9_999.0} <= set(curve.steps.tolist())
    assert (np.diff(curve.steps) > 0).all()


def test_of_many_trials_the_best_the_newest_and_the_asked_one_are_drawn() -> None:
    n = 5 * MAX_CURVES
    columns = trials(list(range(n)))
    rows = pick(columns, is_maximized=False, also=1_333)
    assert len(rows) <= MAX_CURVES
    assert {0, 99, n - 1, n - 150, 1_333} <= set(rows.tolist())
    assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize(
    ("pruner", "rungs"),
    [
        ("{name: asha, min_resource: 1, reduction_factor: 3}", [1, 3, 9, 27]),
        (
            "{name: hyperband, min_resource: 2, max_resource: 32, reduction_factor: 2}",
            [2, 4, 8, 16],
        ),
        (
            "{name: asha, min_resource: 2, reduction_factor: 2, min_early_stopping_rate: 1}",
            [4, 8, 16],
        ),
        ("asha", [1, 3, 9, 27]),
        ("{name: optuna_hyperband, min_resource: 4, reduction_factor: 2}", [4, 8, 16]),
        ("pasha", []),
        ("freeze_thaw", [1, 2, 4, 8, 16]),
        ("successive_halving", []),
        ("median", []),
        ("{name: none}", []),
        ("{name: no such pruner}", []),
    ],
    ids=[
        "asha",
        "hyperband",
        "later",
        "asha as it comes",
        "optuna_hyperband",
        "removed",
        "freeze_thaw",
        "auto",
        "median",
        "none",
        "wrong",
    ],
)
def test_rungs_of_a_study_file(pruner: str, rungs: list[int]) -> None:
    assert rungs_until(pruner_in(f"study: a\npruner: {pruner}\n"), last_step=30) == rungs


@pytest.mark.parametrize(
    ("text", "rungs"),
    [
        ("study: a", [2, 6, 18]),
        ("{study: a, pruner: auto}", [2, 6, 18]),
        ("objectives: {loss: minimize, time: minimize}", [1, 3, 9, 27]),
    ],
    ids=["nothing", "auto", "several objectives"],
)
def test_rungs_of_what_is_picked(text: str, rungs: list[int]) -> None:
    assert rungs_until(pruner_in(text), last_step=30) == rungs


@pytest.mark.parametrize(
    "text",
    ["", "["],
    ids=["empty", "torn"],
)
def test_no_rungs_without_a_pruner(text: str) -> None:
    assert rungs_until(pruner_in(text), last_step=30) == []


def test_figure_fades_the_pruned_and_shows_the_picked_over_all() -> None:
    columns = trials([1.0, 2.0, 3.0], words=["completed", "pruned", "completed"])
    curves = {n: Curve(steps=np.arange(3.0), values=np.full(3, float(n))) for n in range(3)}
    figure = many_curves_figure(curves, columns, AXES, rungs=[1], picked=2, revision="a")
    drawn = json.loads(figure.to_json())
    told = [each["name"] for each in drawn["data"] if each.get("showlegend", True)]
    assert told == ["pruned (1)", "completed (2)", "trial 2"]
    few = many_curves_figure(curves, columns, AXES, rungs=[], picked=None, revision="a")
    assert [each.opacity for each in few.data if each.opacity is not None] == [1.0, 1.0]
    assert drawn["layout"]["shapes"][0]["x0"] == 1
    assert drawn["layout"]["annotations"][0]["text"] == "rung 1"


def test_many_pruned_curves_are_fainter_than_completed_ones() -> None:
    words = ["completed", "pruned"] * 30
    columns = trials([1.0] * 60, words=words)
    curves = {n: Curve(steps=np.arange(3.0), values=np.full(3, float(n))) for n in range(60)}
    plain = many_curves_figure(curves, columns, AXES, rungs=[], picked=None, revision="a")
    pruned, _, completed, _ = plain.data
    assert pruned.opacity < completed.opacity < 1


def test_rungs_stand_at_their_steps_on_a_logarithmic_axis_too() -> None:
    axes = CurveAxes(name="loss", log_x=True, log_y=False)
    figure = many_curves_figure({}, trials([]), axes, rungs=[10], picked=None, revision="a")
    # Plotly wants the step for a line, and its logarithm for a text.
    assert [each.x0 for each in figure.layout.shapes] == [10]
    assert [each.x for each in figure.layout.annotations] == [1]
