"""How values depend on parameters: Optuna's own figures in our dress, and importances."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum

import optuna
import plotly.graph_objects as go
from optuna.study import StudyDirection
from optuna.visualization import (
    plot_contour,
    plot_parallel_coordinate,
    plot_rank,
    plot_slice,
)
from plotly.colors import hex_to_rgb, label_rgb, sample_colorscale

from tuner.app.charts.palette import COLOURS, REVERSED_IN_THE_DARK, TO_THE_BEST
from tuner.app.charts.style import bar_above, dress, name_ticks


class Kind(Enum):
    """A figure of Optuna's."""

    PARALLEL = "parallel coordinates"
    SLICE = "slices"
    CONTOUR = "contour"
    RANK = "rank"


#: More take a browser seconds; a contour is a table of so many rows and columns.
MAX_TRIALS = {Kind.PARALLEL: 1000, Kind.SLICE: 1000, Kind.CONTOUR: 250, Kind.RANK: 1000}
#: A surface through fewer points would show values without measurements.
MIN_FOR_SURFACE = 10
#: A figure of each pair of more would be too small to read.
MAX_PAIRED = 4
_DRAW = {
    Kind.PARALLEL: plot_parallel_coordinate,
    Kind.SLICE: plot_slice,
    Kind.CONTOUR: plot_contour,
    Kind.RANK: plot_rank,
}
_TO_THE_BEST = [[at, label_rgb(hex_to_rgb(colour))] for at, colour in TO_THE_BEST]
_HEIGHTS_PX = {Kind.PARALLEL: 460, Kind.SLICE: 420}


def parameter_figure(
    kind: Kind, study: optuna.Study, names: Sequence[str], value_name: str, *, revision: str
) -> go.Figure:
    """
    Args:
        kind: Which.
        study: With one objective.
        names: Parameters that every trial has.
        value_name: Of the objective, with its direction.
        revision: While it stays the same a refresh keeps the zoom.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # With a `target` Optuna no longer knows the direction, and paints the best in pale.
        figure = _DRAW[kind](study, params=list(names), target_name=value_name)
    figure.update_layout(title_text="")
    _name_trials(figure, study)
    if len(study.get_trials(deepcopy=False)) < MIN_FOR_SURFACE:
        figure.data = [trace for trace in figure.data if trace.type != "contour"]
    if kind is Kind.PARALLEL:
        _make_readable(figure, is_maximized=study.direction is StudyDirection.MAXIMIZE)
    height_px = _HEIGHTS_PX.get(kind, 460 if len(names) < 3 else 720)
    dress(figure, revision=f"{revision} {kind.value} {names}", height_px=height_px)
    figure.update_layout(margin={"t": 30}, showlegend=False, meta={"no_sketch": True})
    name_ticks(figure)
    for trace in figure.data:
        if trace.type == "contour":
            _lay_down(trace.colorbar, value_name)
            trace.meta = REVERSED_IN_THE_DARK
        elif trace.marker.showscale:
            _lay_down(trace.marker.colorbar, value_name)
        if kind is Kind.SLICE:
            trace.meta = REVERSED_IN_THE_DARK
    return figure


def _name_trials(figure: go.Figure, study: optuna.Study) -> None:
    """Gives each point the number of its trial, for its hover text and for a click."""
    trials = study.get_trials(deepcopy=False)
    numbers = [each.number for each in trials]
    of_heights = _numbers_by_rank(study)
    traces = [each for each in figure.data if each.type == "scatter" and each.x is not None]
    heights = sorted({float(each.y[0]) for each in traces if each.mode == "lines"})
    for trace in traces:
        if trace.mode == "lines":
            is_known = len(heights) == len(of_heights)
            at = heights.index(float(trace.y[0]))
            _name_line(trace, of_heights[at] if is_known else None)
        elif len(trace.x) == len(numbers):
            trace.customdata = numbers
            if not trace.hovertemplate:
                trace.hovertemplate = "trial %{customdata}<br>%{x}<br>%{y}<extra></extra>"


def _numbers_by_rank(study: optuna.Study) -> list[int | None]:
    """By value, the lowest first: the trial's number, None where several have the value."""
    by_value: dict[float, list[int]] = {}
    for each in study.get_trials(deepcopy=False):
        by_value.setdefault(each.values[0], []).append(each.number)
    return [own[0] if len(own) == 1 else None for _, own in sorted(by_value.items())]


def _name_line(trace: go.Scatter, number: int | None) -> None:
    """One trial in parallel coordinates."""
    trace.text = [f"{name}: {value}" for name, value in trace.customdata]
    trace.customdata = None if number is None else [number] * len(trace.x)
    known = "" if number is None else f"trial {number}<br>"
    trace.hovertemplate = f"{known}%{{text}}<extra></extra>"


def _lay_down(bar: go.contour.ColorBar | go.scatter.marker.ColorBar, value_name: str) -> None:
    bar.update(bar_above(bar.title.text or value_name), len=0.7)
    if bar.ticktext:
        # Optuna's `25% (0.829216)`
        words = [text.rstrip(")").partition(" (") for text in bar.ticktext]
        bar.ticktext = [f"{place}<br>{float(value):.3g}" for place, _, value in words]


def _make_readable(figure: go.Figure, *, is_maximized: bool) -> None:
    """Optuna's parallel coordinates, so that the best stand out on white and on black."""
    for trace in figure.data:
        if trace.mode == "lines":
            height = float(trace.y[0])
            (trace.line.color,) = sample_colorscale(
                _TO_THE_BEST, height if is_maximized else 1 - height
            )
        elif trace.marker.showscale:
            trace.marker.colorscale = _TO_THE_BEST
            trace.marker.reversescale = not is_maximized
    # In the colour of the page's text, and not cut off at the left of a phone.
    figure.update_annotations(font_color=None)
    axis = figure.layout.xaxis
    ends = (axis.tickvals[0] - 0.5, axis.tickvals[-1] + 0.3)
    texts = [str(text).replace(" (", "<br>(") for text in axis.ticktext]
    axis.update(range=ends, ticktext=texts, ticklabeloverflow="allow")


def importance_figure(found: Mapping[str, float], *, revision: str) -> go.Figure:
    """The most important on top."""
    names = list(found)[::-1]
    figure = go.Figure(
        go.Bar(
            x=[found[name] for name in names],
            y=names,
            orientation="h",
            marker={"color": COLOURS["completed"]},
            text=[f"{found[name]:.2f}" for name in names],
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )
    )
    dress(figure, revision=revision, height_px=80 + 32 * len(names))
    figure.update_xaxes(title_text="Importance (PED-ANOVA, share of all, 0 to 1)")
    return figure
