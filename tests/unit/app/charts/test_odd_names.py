"""Names and categories in figures of parameters: tags are shown as they are, long names fit."""

from __future__ import annotations

import optuna
import plotly.graph_objects as go
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.app.charts.parallel import parallel_figure
from tuner.app.charts.parameters import Kind, importance_figure, parameter_figure
from tuner.app.charts.style import shortened, to_json

LONG = "a_name_of_a_parameter_" * 6
SPACE: dict[str, BaseDistribution] = {
    "<b>lr</b>": FloatDistribution(1e-5, 1e-1, log=True),
    "<i>kind</i>": CategoricalDistribution(["<b>bold</b>", "plain", "x" * 80]),
    LONG: IntDistribution(1, 9),
}
KINDS = [Kind.SLICE, Kind.CONTOUR, Kind.RANK]


def figure_of(kind: Kind, *names: str) -> go.Figure:
    study = optuna.create_study()
    for at in range(12):
        category = ("<b>bold</b>", "plain", "x" * 80)[at % 3]
        params = {"<b>lr</b>": 1e-5 * 2**at, "<i>kind</i>": category, LONG: 1 + at % 9}
        study.add_trial(optuna.create_trial(value=at, params=params, distributions=SPACE))
    return parameter_figure(kind, study, names or list(SPACE), "loss <b>", revision="s")


@pytest.mark.parametrize("kind", KINDS)
def test_tags_in_names_and_categories_are_shown_as_they_are(kind: Kind) -> None:
    figure = figure_of(kind)
    figure.layout.uirevision = ""  # Not compared.
    text = to_json(figure)
    for code, sign in (("\\u003c", "<"), ("\\u003e", ">"), ("\\u002f", "/")):
        text = text.replace(code, sign)
    for tag in ("<b>", "</b>", "<i>", "</i>"):
        assert tag not in text
    assert "&lt;i>kind&lt;/i>" in text.replace("<br>", "")
    assert "&lt;b>bold&lt;/b>" in text
    assert "&lt;b>lr&lt;/b>" in text.replace("<br>", "")


@pytest.mark.parametrize("kind", KINDS)
def test_long_names_and_categories_are_shortened_at_the_axes(kind: Kind) -> None:
    figure = figure_of(kind)
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    titles = [axis.title.text.replace("<br>", "") for axis in axes if axis.title.text]
    assert shortened(LONG, 36) in titles
    assert max(map(len, titles)) <= 40
    ticks = {text for axis in axes for text in axis.ticktext or ()}
    assert any("…" in text for text in ticks)
    assert max(map(len, ticks)) <= 24
    drawn = {each for trace in figure.data for each in (trace.x if trace.x is not None else ())}
    assert any("x" * 80 in str(each) for each in drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_every_category_has_its_tick(kind: Kind) -> None:
    names = ("<i>kind</i>", LONG)
    figure = figure_of(kind, *names)
    (axis, *_) = [
        axis for axis in (*figure.select_xaxes(), *figure.select_yaxes()) if axis.type == "category"
    ]
    shown = dict(zip(axis.tickvals, axis.ticktext, strict=True))
    assert {text.strip("'") for text in shown.values()} >= {"plain", "&lt;b>bold&lt;/b>"}
    assert len(shown) == 3


def test_importances_and_parallel_axes_of_long_names_leave_room() -> None:
    figure = importance_figure({"lr": 0.7, LONG: 0.3}, revision="s")
    assert list(figure.data[0].y) == [LONG, "lr"]
    assert list(figure.layout.yaxis.ticktext) == [shortened(LONG, 28), "lr"]
    study = optuna.create_study()
    alike = [f"{LONG}{at}{LONG}" for at in range(2)]
    space = {name: FloatDistribution(0, 1) for name in (*alike, LONG)}
    for at in range(3):
        params = dict.fromkeys(space, at / 3)
        study.add_trial(optuna.create_trial(value=at, params=params, distributions=dict(space)))
    (lines,) = parallel_figure(study, [LONG], "loss", revision="s").data
    assert [each.label for each in lines.dimensions] == ["loss", shortened(LONG, 28)]
    (lines,) = parallel_figure(study, alike, "loss", revision="s").data
    assert len({each.label for each in lines.dimensions}) == 3


def test_a_name_is_shortened_in_its_middle() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcde…hijk"
