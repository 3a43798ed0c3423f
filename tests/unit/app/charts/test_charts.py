"""Figures: what stands where, which unit an axis has, and what keeps a zoom."""

from __future__ import annotations

import json
import math

import numpy as np
import optuna
import plotly.graph_objects as go
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection

from tests.unit.app.columns import ACCURACY, LOSS, NAN, bars_of, device, lease, leases, trials
from tuner.app.charts.convergence import convergence_figure, pareto_figure
from tuner.app.charts.curves import curve_figure
from tuner.app.charts.devices.timeline import timeline_figure
from tuner.app.charts.palette import BEST, COLOURS
from tuner.app.charts.parallel import parallel_figure
from tuner.app.charts.parameters import Kind, parameter_figure
from tuner.app.charts.style import to_json
from tuner.app.data.convergence.best_part import BestPart, best_part
from tuner.app.data.convergence.series import Axis, best_so_far, pareto_front, scale_of
from tuner.app.data.outcome_words import ALL_WORDS
from tuner.app.data.trials.columns import TrialColumns
from tuner.queries.studies import Objective
from tuner.queries.trials.listing import ABANDONED


def convergence(columns: TrialColumns, axis: Axis = Axis.TRIALS, *, log: bool = False) -> go.Figure:
    scale = scale_of(columns, axis, None)
    best = best_so_far(columns, scale, 0, is_maximized=False)
    return convergence_figure(
        columns, scale, best, LOSS, place=0, revision="study", log_x=log, log_y=log
    )


def names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data]


def test_every_outcome_has_a_colour() -> None:
    assert {*ALL_WORDS, ABANDONED} == set(COLOURS)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a<b", "<a href='x'>y</a>"])
def test_a_name_is_no_tag(name: str) -> None:
    columns = trials([3.0, 2.0])
    scale = scale_of(columns, Axis.TRIALS, None)
    best = best_so_far(columns, scale, 0, is_maximized=False)
    named = Objective(name=name, direction=StudyDirection.MINIMIZE)
    figure = convergence_figure(columns, scale, best, named, place=0, revision="study")
    drawn = json.loads(to_json(figure))
    title = drawn["layout"]["yaxis"]["title"]["text"]
    assert title == f"{name} (minimize)".replace("<", "&lt;")
    assert "<br>" in drawn["data"][0]["hovertemplate"]
    assert drawn["data"][0]["hovertemplate"].endswith("</extra>")


def test_points_by_outcome_and_the_best_so_far() -> None:
    figure = convergence(trials([3.0, 2.0, 4.0], words=["completed", "completed", "pruned"]))
    assert names(figure) == ["pruned", "completed", "best so far"]
    assert figure.layout.xaxis.title.text == "Trial (number)"
    assert figure.layout.yaxis.title.text == "loss (minimize)"


def test_trials_without_a_value_stand_in_a_strip_of_their_own() -> None:
    figure = convergence(trials([3.0, NAN], words=["completed", "out_of_memory"]))
    assert names(figure) == ["out of memory", "completed", "best so far"]
    assert figure.data[0].yaxis == "y2"
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]


@pytest.mark.parametrize("words", [[], ["running"], ["failed"]])
def test_figure_without_values(words: list[str]) -> None:
    figure = convergence(trials([NAN] * len(words), words=words))
    assert "best so far" not in names(figure)


def test_a_refresh_keeps_the_zoom_and_another_axis_does_not() -> None:
    first, second = convergence(trials([3.0])), convergence(trials([3.0, 2.0]))
    assert first.layout.uirevision == second.layout.uirevision
    assert first.layout.uirevision != convergence(trials([3.0]), Axis.TIME).layout.uirevision
    assert first.layout.uirevision != convergence(trials([3.0]), log=True).layout.uirevision


def test_axes_can_be_logarithmic() -> None:
    figure = convergence(trials([3.0, 2.0]), log=True)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_many_points_are_drawn_by_the_graphics_card() -> None:
    assert convergence(trials([1.0] * 2001)).data[0].type == "scattergl"
    assert convergence(trials([1.0] * 2000)).data[0].type == "scatter"


def test_front_stands_out() -> None:
    columns = trials([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0]])
    front = pareto_front(columns, [False, True])
    figure = pareto_figure(columns, front, (LOSS, ACCURACY), (0, 1), revision="study")
    assert names(figure) == ["completed", None, "Pareto front"]
    assert list(figure.data[2].customdata) == [0, 1]
    assert figure.layout.yaxis.title.text == "accuracy (maximize)"


LATENCY = Objective(name="latency", direction=StudyDirection.MINIMIZE)
SCORE = Objective(name="score", direction=StudyDirection.MAXIMIZE)


@pytest.mark.parametrize(
    ("pair", "shape"),
    [
        ((LOSS, LATENCY), "hv"),
        ((LOSS, SCORE), "hv"),
        ((SCORE, LOSS), "vh"),
        ((ACCURACY, SCORE), "vh"),
    ],
)
def test_no_corner_of_the_front_is_better_than_every_trial(
    pair: tuple[Objective, Objective], shape: str
) -> None:
    signs = [-1.0 if each.is_maximized else 1.0 for each in pair]
    columns = trials([[signs[0] * at, signs[1] * (5 - at) ** 2] for at in range(5)])
    front = pareto_front(columns, [each.is_maximized for each in pair])
    figure = pareto_figure(columns, front, pair, (0, 1), revision="study")
    line = figure.data[0]
    assert (line.mode, line.line.shape) == ("lines", shape)
    x, y = list(line.x), list(line.y)
    corners = zip(x[1:], y[:-1], strict=True) if shape == "hv" else zip(x[:-1], y[1:], strict=True)
    for corner in corners:
        losses = [sign * each for sign, each in zip(signs, corner, strict=True)]
        # A trial is as good as the corner or better in both: the line claims nothing unreached.
        assert any((row * signs <= losses).all() for row in columns.values)


def test_the_best_part_is_shown_where_one_value_is_far_off() -> None:
    values = [1.0 + 0.01 * at for at in range(20)] + [1e9]
    part = best_part(np.array(values), np.array([1.0]), is_maximized=False, is_log=False)
    assert part is not None
    assert part.low < 1.0 < 1.09 < part.high < 1.2
    assert part.n_outside == sum(each > part.high for each in values) > 0
    mirrored = best_part(-np.array(values), np.array([-1.0]), is_maximized=True, is_log=False)
    assert mirrored == BestPart(low=-part.high, high=-part.low, n_outside=part.n_outside)
    log = best_part(np.array(values), np.array([1.0]), is_maximized=False, is_log=True)
    assert log is not None
    assert 0 < log.low < 1.0 < log.high < 1.2


@pytest.mark.parametrize("values", [[1.0] * 30, [1.0, 2.0, 1e9], [float(at) for at in range(30)]])
def test_all_values_are_shown_where_none_is_far_off_or_few_are_known(values: list[float]) -> None:
    stairs = np.array(values[:1])
    assert best_part(np.array(values), stairs, is_maximized=False, is_log=False) is None


def test_timeline_has_a_row_for_each_device_and_a_colour_for_each_outcome() -> None:
    bars = bars_of(
        leases(lease(1, 0, 0, 10), lease(2, 1, 2, 4, word="failed"), lease(3, 0, 10, 20))
    )
    figure = timeline_figure(bars, [device(0), device(1)], start_s=0, end_s=20, revision="study")
    assert names(figure) == ["completed", "failed"]
    assert list(figure.data[0].y) == [0, 0]
    assert list(figure.data[0].x) == [10_000, 10_000]
    assert list(figure.layout.yaxis.ticktext) == ["GPU 0", "GPU 1"]
    assert figure.layout.xaxis.title.text == "Time (UTC)"


def test_bars_of_shares_lie_beside_each_other() -> None:
    bars = bars_of(
        leases(*[lease(i, 0, 0, 10, slot=i, share=0.25) for i in range(4)], devices=[device(0)])
    )
    figure = timeline_figure(bars, [device(0)], start_s=0, end_s=10, revision="study")
    (trace,) = figure.data
    ends = [at + width for at, width in zip(trace.offset, trace.width, strict=True)]
    assert ends[:-1] == pytest.approx(list(trace.offset)[1:])
    assert -0.5 <= trace.offset[0] < ends[-1] <= 0.5


def test_wide_trials_fill_their_rows() -> None:
    bars = bars_of(leases(lease(1, 0, 0, 10), lease(1, 1, 0, 10), lease(2, 0, 10, 20)))
    figure = timeline_figure(bars, [device(0), device(1)], start_s=0, end_s=20, revision="s")
    assert list(figure.data[0].width) == pytest.approx([1.0, 1.0, 0.78])


def test_curve_has_a_gap_where_a_value_is_no_number() -> None:
    figure = curve_figure("loss", {2: math.nan, 1: 0.5, 3: 0.25}, revision="trial 1")
    assert list(figure.data[0].x) == [1, 2, 3]
    assert list(figure.data[0].y) == [0.5, None, 0.25]
    assert figure.layout.xaxis.title.text == "Step (as reported)"


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_best_trial_stands_out_among_parallel_coordinates(direction: str) -> None:
    both: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    study = optuna.create_study(direction=direction)
    for value in (0.0, 0.4, 1.0):
        study.add_trial(
            optuna.create_trial(value=value, params={"x": value, "y": 0.5}, distributions=both)
        )
    figure = parameter_figure(
        Kind.PARALLEL, study, ["x", "y"], f"loss ({direction})", revision="study"
    )
    (lines,) = figure.data
    shown = dict(zip(lines.customdata, lines.line.color, strict=True))
    # Plotly draws the largest number in front, and its colour ends the scale.
    assert shown == {0: float(direction == "minimize"), 1: 0.5, 2: float(direction == "maximize")}
    assert lines.line.colorscale[-1] == (1.0, BEST)
    assert lines.dimensions[0].label == f"loss ({direction})"
    numbers = dict(zip(lines.customdata, lines.dimensions[0]["values"], strict=True))
    assert numbers == {0: 0.0, 1: 0.4, 2: 1.0}


def test_axes_of_parallel_coordinates_have_true_labels() -> None:
    space: dict[str, BaseDistribution] = {
        "lr": FloatDistribution(1e-5, 1, log=True),
        "<b>kind</b>": CategoricalDistribution(["adam", None, True]),
        "width": IntDistribution(1, 1024, log=True),
    }
    study = optuna.create_study()
    for at, kind in enumerate(("adam", None, True)):
        params = {"lr": 10.0 ** (-2 * at - 1), "<b>kind</b>": kind, "width": 4 * 16**at}
        study.add_trial(optuna.create_trial(value=at, params=params, distributions=space))
    (lines,) = parallel_figure(study, list(space), "loss", revision="s").data
    _, lr, kinds, width = lines.dimensions
    by_trial = dict(zip(lines.customdata, kinds["values"], strict=True))
    texts = dict(zip(kinds.tickvals, kinds.ticktext, strict=True))
    assert kinds.label == "&lt;b>kind&lt;/b>"
    assert {number: texts[at] for number, at in by_trial.items()} == {
        0: "adam",
        1: "None",
        2: "True",
    }
    ticks = [(text.strip("\u200b"), at) for text, at in zip(lr.ticktext, lr.tickvals, strict=True)]
    named = [(text, at) for text, at in ticks if text]
    assert [text for text, _ in named] == ["1e-05", "0.0001", "0.001", "0.01", "0.1"]
    assert [at for _, at in named] == pytest.approx([-5, -4, -3, -2, -1])
    # Plotly finds ticks by their texts, and lets a range begin and end at ticks alone.
    assert len(set(lr.ticktext)) == len(ticks) > 100
    assert max(np.diff(lr.tickvals)) < 0.05
    assert (width.ticktext[0], width.ticktext[-1]) == ("4", "1024")
    assert "Trial 2. loss: 2, lr: 1e-05, <b>kind</b>: True, width: 1024" in lines.meta["parallel"]


@pytest.mark.parametrize("kind", [Kind.SLICE, Kind.CONTOUR, Kind.RANK])
def test_the_colours_are_told_above_the_figure_and_what_is_shown_with_them(kind: Kind) -> None:
    study = optuna.create_study()
    space: dict[str, BaseDistribution] = {
        "lr": FloatDistribution(1e-5, 1, log=True),
        "x": FloatDistribution(0, 1),
    }
    for at in range(13):
        params = {"lr": 10.0 ** (at % 6 - 5), "x": 0.05 * at}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, value=1.0 + at)
        )
    figure = parameter_figure(kind, study, ["lr", "x"], "loss (minimize)", revision="s")
    bars = [
        each.colorbar if each.type == "contour" else each.marker.colorbar
        for each in figure.data
        if each.type == "contour" or each.marker.showscale
    ]
    (bar,) = bars
    assert (bar.orientation, bar.y) == ("h", 1)
    assert bar.title.text == ("Trial" if kind is Kind.SLICE else "loss (minimize)<br>")
    if kind is Kind.RANK:
        assert list(bar.ticktext) == [
            "min.<br>1",
            "25%<br>4",
            "50%<br>7",
            "75%<br>10",
            "max.<br>13",
        ]
    logarithmic = [axis for axis in figure.select_xaxes() if axis.type == "log"]
    assert {axis.tickformat for axis in logarithmic} <= {"~g"}
    assert len(logarithmic) == 1
