"""Values by parameters: Optuna's figures in the common layout, and importances."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum

import optuna
import plotly.graph_objects as go
from optuna.visualization import plot_contour, plot_rank, plot_slice

from tuner.app.charts.palette import COLOURS, REVERSED_IN_THE_DARK, text_on
from tuner.app.charts.parallel import MAX_AXES, parallel_figure
from tuner.app.charts.style import bar_above, dress, literal, name_ticks, shortened
from tuner.app.charts.surface import coarsen


class Kind(Enum):
    """A figure of values against parameters."""

    PARALLEL = "parallel coordinates"
    SLICE = "slices"
    CONTOUR = "contour"
    RANK = "rank"


#: More trials take a browser seconds; a contour has their points once for each pair of parameters.
MAX_TRIALS = {Kind.PARALLEL: 1000, Kind.SLICE: 500, Kind.CONTOUR: 250, Kind.RANK: 1000}
#: Maximum number of importance bars: with more, the other figures would be out of sight.
MAX_BARS = 20
#: Maximum number of parameters in figures that show all of them.
MAX_DRAWN = {Kind.PARALLEL: MAX_AXES, Kind.SLICE: 6}
#: A surface through fewer points would show values without measurements.
MIN_FOR_SURFACE = 10
#: A figure of each pair of more would be too small to read.
MAX_PAIRED = 4
_DRAW = {
    Kind.SLICE: plot_slice,
    Kind.CONTOUR: plot_contour,
    Kind.RANK: plot_rank,
}
_SLICES_HEIGHT_PX = 420
#: Height of a bar of colours with its title, two lines of ticks, and a gap below.
_BAR_PX = 100
#: Characters: of a line of the name of a narrow axis, of its whole name, of categories, of bars.
_WRAP_AT, _MAX_NAME, _MAX_CATEGORY, _MAX_BAR_NAME = 12, 36, 16, 28
_MAX_UNWRAPPED = 1


def parameter_figure(
    kind: Kind, study: optuna.Study, names: Sequence[str], value_name: str, *, revision: str
) -> go.Figure:
    """A figure of parameters.

    Args:
        kind: The kind of figure.
        study: With one objective.
        names: Parameters that every trial has.
        value_name: Name of the objective, with its direction.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    if kind is Kind.PARALLEL:
        # An axis that comes, goes or changes its place leaves the ranges of the others.
        kept = f"{revision} {kind.value} {value_name}"
        return parallel_figure(study, names, value_name, revision=kept)
    kept = f"{revision} {kind.value} {names}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # With a `target` Optuna no longer knows the direction, and paints the best in pale.
        figure = _DRAW[kind](study, params=list(names), target_name=value_name)
    figure.update_layout(title_text="")
    _name_trials(figure, study)
    if len(study.get_trials(deepcopy=False)) < MIN_FOR_SURFACE:
        figure.data = [trace for trace in figure.data if trace.type != "contour"]
    several_px = 460 if len(names) < 3 else 720
    height_px = _SLICES_HEIGHT_PX if kind is Kind.SLICE else several_px
    dress(figure, revision=kept, height_px=height_px)
    top_px = 30 if kind is Kind.SLICE else _BAR_PX
    figure.update_layout(margin={"t": top_px}, showlegend=False)
    figure.update_layout(meta={"no_sketch": True, "panels": kind is Kind.SLICE})
    name_ticks(figure)
    wrap_at = _WRAP_AT if kind is Kind.SLICE and len(names) > _MAX_UNWRAPPED else _MAX_NAME
    _name_axes(figure, wrap_at=wrap_at)
    _show_literally(figure)
    for trace in figure.data:
        if trace.type == "contour":
            _lay_down(trace.colorbar, value_name, is_fixed=True)
            x, y = (_axis_of(figure, name) for name in (trace.xaxis or "x", trace.yaxis or "y"))
            coarsen(trace, log_x=x.type == "log", log_y=y.type == "log")
            trace.meta = REVERSED_IN_THE_DARK
        elif trace.marker.showscale:
            _lay_down(trace.marker.colorbar, value_name, is_fixed=kind is not Kind.SLICE)
        if kind is Kind.SLICE:
            trace.meta = REVERSED_IN_THE_DARK
    return figure


def _axis_of(figure: go.Figure, name: str) -> go.layout.XAxis | go.layout.YAxis:
    """The axis that a trace calls `x2`."""
    return figure.layout[f"{name[0]}axis{name[1:]}"]


def _name_axes(figure: go.Figure, *, wrap_at: int) -> None:
    """Titles that show just the names, and neither run over each other nor out of the figure."""
    for axis in figure.select_xaxes():
        text = shortened(axis.title.text or "", _MAX_NAME)
        parts = [text[at : at + wrap_at] for at in range(0, len(text), wrap_at)]
        axis.title.text = "<br>".join(literal(part) for part in parts)
    for axis in figure.select_yaxes():
        axis.title.text = literal(shortened(axis.title.text or "", _MAX_NAME))


def _show_literally(figure: go.Figure) -> None:
    """Categories and hover texts that look like tags; long categories are shortened at the axis."""
    for trace in figure.data:
        if trace.hovertext:
            trace.hovertext = [
                literal(each).replace("&lt;br>", "<br>") for each in _texts(trace.hovertext)
            ]
        for key in ("x", "y"):
            values = getattr(trace, key)
            axis = _axis_of(figure, getattr(trace, f"{key}axis") or key)
            if axis.type != "category" or values is None:
                continue
            shown = [None if each is None else literal(str(each)) for each in values]
            setattr(trace, key, shown)
            order = [literal(each) for each in axis.categoryarray or ()]
            known = [*(axis.tickvals or ()), *order, *(each for each in shown if each is not None)]
            axis.tickvals = list(dict.fromkeys(known))
            axis.ticktext = [
                literal(shortened(each.replace("&lt;", "<"), _MAX_CATEGORY))
                for each in axis.tickvals
            ]
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        if axis.categoryarray is not None:
            axis.categoryarray = [literal(each) for each in axis.categoryarray]


def _texts(found: str | Sequence[str]) -> Sequence[str]:
    return [found] if isinstance(found, str) else found


def _name_trials(figure: go.Figure, study: optuna.Study) -> None:
    """Adds the number of its trial to each point, for its hover text and for clicks."""
    numbers = [each.number for each in study.get_trials(deepcopy=False)]
    for trace in figure.data:
        if trace.type == "scatter" and trace.x is not None and len(trace.x) == len(numbers):
            trace.customdata = numbers
            if not trace.hovertemplate:
                trace.hovertemplate = "trial %{customdata}<br>%{x}<br>%{y}<extra></extra>"


def _lay_down(
    bar: go.contour.ColorBar | go.scatter.marker.ColorBar, value_name: str, *, is_fixed: bool
) -> None:
    title = literal(bar.title.text or value_name)
    bar.update(bar_above(title), len=0.7)
    if is_fixed:
        # One that moves with the plot makes Plotly draw titles of axes over their ticks. The last
        # line of the title of one that does not is drawn over the bar.
        bar.update(yref="container", yanchor="top", ypad=16, title_text=f"{title}<br>")
    if bar.ticktext:
        # Optuna's `25% (0.829216)`
        words = [text.rstrip(")").partition(" (") for text in bar.ticktext]
        bar.ticktext = [f"{place}<br>{float(value):.3g}" for place, _, value in words]


def importance_figure(found: Mapping[str, float], *, revision: str) -> go.Figure:
    """The most important on top, at most `MAX_BARS`.

    Args:
        found: Importances by parameter, the most important first.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    names = list(found)[:MAX_BARS][::-1]
    bars = [literal(name) for name in names]
    figure = go.Figure(
        go.Bar(
            x=[found[name] for name in names],
            y=bars,
            orientation="h",
            marker={"color": COLOURS["completed"]},
            text=[f"{found[name]:.2g}" for name in names],
            insidetextfont={"color": text_on(COLOURS["completed"])},
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )
    )
    dress(figure, revision=revision, height_px=80 + 32 * len(names))
    figure.update_xaxes(title_text="Share of all (PED-ANOVA)")
    short = [literal(shortened(name, _MAX_BAR_NAME)) for name in names]
    figure.update_yaxes(tickvals=bars, ticktext=short)
    return figure
