"""Best value so far, every trial as a point, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import BEST, COLOURS, OTHER, SYMBOLS
from tuner.app.charts.style import dress, literal, name_ticks
from tuner.app.data.columns import Flags, Floats, Numbers
from tuner.app.data.convergence.best_part import BestPart
from tuner.app.data.convergence.forecast import Forecast
from tuner.app.data.convergence.hypervolume import Hypervolume
from tuner.app.data.convergence.series import BestSoFar, Scale
from tuner.app.data.outcome_words import ALL_WORDS, COMPLETED, PAUSED, shown
from tuner.app.data.trials.columns import TrialColumns
from tuner.domain.pareto_front import is_on_front
from tuner.queries.studies import Objective

#: Above it the browser's graphics card draws the points: ten thousand as SVG take a second.
_MAX_SVG_POINTS = 2000
#: Axis of the strip of trials without a value.
STRIP = "y2"
#: Below it each trial has a tick of its own.
_FEW_TRIALS = 10
_STRIP_TOP, _POINTS_BOTTOM = 0.06, 0.12


def convergence_figure(
    trials: TrialColumns,
    scale: Scale,
    best: BestSoFar,
    objective: Objective,
    *,
    place: int,
    revision: str,
    log_x: bool = False,
    log_y: bool = False,
    other: tuple[str, BestSoFar] | None = None,
    ahead: tuple[float, Forecast] | None = None,
    part: BestPart | None = None,
) -> go.Figure:
    """The convergence of a study. Trials without a value are in a strip below.

    Args:
        trials: All trials of the study.
        scale: The horizontal axis.
        best: Best value so far.
        objective: The objective.
        place: Its index.
        revision: While it is unchanged, a refresh keeps the zoom.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical axis is logarithmic.
        other: Another study's name, and its best so far on the same axes.
        ahead: The expected end of the horizontal axis, and the forecast there.
        part: The vertical range; None for that of all values.
    """
    figure = go.Figure()
    values = trials.shown_values[:, place]
    has_strip = _add_points(figure, trials, scale.values, values)
    if other is not None and len(other[1].x):
        figure.add_trace(_staircase(other[1], literal(f"best of {other[0]}"), OTHER))
    if len(best.x):
        figure.add_trace(_staircase(best, "best so far", BEST))
        if ahead is not None:
            figure.add_trace(_expected(float(best.x[-1]), float(best.y[-1]), *ahead))
    dress(figure, revision=f"{revision} {scale.title} {log_x} {log_y} {part is None}")
    figure.update_xaxes(title_text=scale.title, type="log" if log_x else "linear")
    figure.update_yaxes(
        title_text=literal(f"{objective.name} ({objective.direction.name.lower()})"),
        type="log" if log_y else "linear",
    )
    name_ticks(figure)
    if scale.is_counted and not log_x and np.nanmax(scale.values, initial=0.0) < _FEW_TRIALS:
        figure.update_xaxes(dtick=1)  # There is no trial 0.5.
    if part is not None:
        ends = (part.low, part.high)
        figure.update_yaxes(range=[math.log10(each) for each in ends] if log_y else ends)
    if has_strip:
        _make_room_for_strip(figure)
    return figure


def _make_room_for_strip(figure: go.Figure) -> None:
    """Reserves a strip below the points for trials without a value."""
    figure.update_layout(
        yaxis={"domain": [_POINTS_BOTTOM, 1.0]},
        yaxis2={
            "domain": [0.0, _STRIP_TOP],
            "range": [-1, 1],
            "showticklabels": False,
            "showgrid": False,
            "zeroline": False,
            "ticks": "",
            "fixedrange": True,
            "title": {"text": "no value", "font": {"size": 10}},
        },
        xaxis={"anchor": "y2"},
    )


def _add_points(figure: go.Figure, trials: TrialColumns, x: Floats, values: Floats) -> bool:
    """Whether some trials have no value."""
    kind = go.Scattergl if len(trials) > _MAX_SVG_POINTS else go.Scatter
    has_value, has_strip = np.isfinite(values), False
    # Those that completed are drawn last, over the others.
    codes = np.unique(trials.words[trials.is_placed]).tolist()
    for code in sorted(codes, key=lambda each: each == COMPLETED):
        own = (trials.words == code) & trials.is_placed & ~np.isnan(x)
        bad = own & has_value & trials.is_infeasible
        word = ALL_WORDS[code]
        for chosen, axis, name in (
            (bad, "y", f"{shown(word)}, infeasible"),
            (own & has_value & ~bad, "y", shown(word)),
            (own & ~has_value, STRIP, shown(word)),
        ):
            if not chosen.any():
                continue
            in_strip = axis == STRIP
            has_strip |= in_strip
            figure.add_trace(
                kind(
                    x=x[chosen],
                    y=np.zeros(int(chosen.sum())) if in_strip else values[chosen],
                    yaxis=axis,
                    mode="markers",
                    name=name,
                    legendgroup=name,
                    showlegend=not in_strip or not (own & has_value & ~bad).any(),
                    marker=_marker(word, in_strip=in_strip, is_infeasible=chosen is bad),
                    customdata=trials.numbers[chosen],
                    hovertemplate=_hover(in_strip=in_strip),
                    text=_texts(trials, chosen, values, is_paused=code == PAUSED),
                )
            )
    return has_strip


def _marker(word: str, *, in_strip: bool, is_infeasible: bool) -> dict[str, object]:
    if in_strip:
        return {"color": COLOURS[word], "symbol": "line-ns-open", "size": 9}
    symbol = "x-thin-open" if is_infeasible else SYMBOLS[word]
    is_completed = ALL_WORDS[COMPLETED] == word
    size, opacity = (6, 0.8) if is_completed else (7, 0.9)
    return {"color": COLOURS[word], "size": size, "opacity": opacity, "symbol": symbol}


def _texts(
    trials: TrialColumns, chosen: Flags, values: Floats, *, is_paused: bool
) -> list[str] | None:
    """The step at which each trial is paused, and values that have no place on an axis."""
    is_infinite = np.isinf(values[chosen]).tolist()
    if not is_paused and not any(is_infinite):
        return None
    steps = trials.last_steps[chosen].tolist() if is_paused else [np.nan] * len(is_infinite)
    at = ["" if np.isnan(each) else f" at step {each:.0f}" for each in steps]
    said = [f"<br>value {each}" for each in values[chosen].tolist()]
    return [
        f"{step}{value if infinite else ''}"
        for step, value, infinite in zip(at, said, is_infinite, strict=True)
    ]


def _hover(*, in_strip: bool) -> str:
    value = "" if in_strip else "<br>%{y:.6g}"
    return (
        f"trial %{{customdata}}%{{text}}{value}<br>at %{{x:.6g}}<extra>%{{fullData.name}}</extra>"
    )


def _staircase(best: BestSoFar, name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=best.x,
        y=best.y,
        mode="lines",
        name=name,
        line={"color": colour, "width": 2.5, "shape": "hv"},
        customdata=best.numbers,
        hovertemplate="since trial %{customdata}<br>%{y:.6g}<extra>%{fullData.name}</extra>",
    )


def _expected(x: float, y: float, end: float, told: Forecast) -> go.Scatter:
    """From the best so far to the end of the budget, with the likely range."""
    bars = sorted([told.cautious, told.hopeful])
    return go.Scatter(
        x=[x, end],
        y=[y, told.median],
        mode="lines+markers",
        name="forecast, likely range",
        line={"color": BEST, "width": 2, "dash": "dot"},
        marker={"size": [0, 8], "color": BEST},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0, bars[1] - told.median],
            "arrayminus": [0, told.median - bars[0]],
            "color": BEST,
            "thickness": 2,
        },
        hovertemplate=f"after {told.n_more} more trials<br>%{{y:.6g}}<extra>forecast</extra>",
    )


def hypervolume_figure(volume: Hypervolume, *, revision: str) -> go.Figure:
    """The hypervolume by trial number."""
    figure = go.Figure(
        go.Scatter(
            x=volume.numbers,
            y=volume.shares,
            mode="lines",
            line={"color": BEST, "width": 2.5, "shape": "hv"},
            name="hypervolume",
            customdata=volume.numbers,
            hovertemplate="trial %{x}<br>%{y:.4g} of the box<extra></extra>",
        )
    )
    dress(figure, revision=revision, height_px=300)
    figure.update_xaxes(title_text="Trial (number)")
    figure.update_yaxes(title_text="Hypervolume (share, 0 to 1)", rangemode="tozero")
    return figure


def pareto_figure(
    trials: TrialColumns,
    front: Flags,
    objectives: tuple[Objective, Objective],
    places: tuple[int, int],
    *,
    revision: str,
) -> go.Figure:
    """Two objectives against each other."""
    figure = go.Figure()
    kind = go.Scattergl if len(trials) > _MAX_SVG_POINTS else go.Scatter
    x, y = trials.values[:, places[0]], trials.values[:, places[1]]
    there = np.isfinite(x) & np.isfinite(y) & trials.is_finished & ~front
    for chosen, name, colour in _clouds(trials, there):
        figure.add_trace(_cloud(kind, x, y, chosen, trials, name, colour))
    if front.any():
        at = np.flatnonzero(front)
        at = at[np.argsort(x[at])]
        figure.add_trace(_edge(x[at], y[at], objectives))
        figure.add_trace(_cloud(go.Scatter, x, y, at, trials, "Pareto front", BEST))
    dress(figure, revision=revision)
    titles = [literal(f"{each.name} ({each.direction.name.lower()})") for each in objectives]
    figure.update_xaxes(title_text=titles[0])
    figure.update_yaxes(title_text=titles[1])
    return figure


def _edge(x: Floats, y: Floats, objectives: tuple[Objective, Objective]) -> go.Scatter:
    """The border of the region that the front dominates, as a staircase.

    With more objectives than these two, some trials of the front are not on it.
    """
    signs = [-1.0 if each.is_maximized else 1.0 for each in objectives]
    outer = is_on_front(np.column_stack([signs[0] * x, signs[1] * y]))
    return go.Scatter(
        x=x[outer],
        y=y[outer],
        mode="lines",
        line={
            "color": BEST,
            "width": 1.5,
            "shape": "vh" if objectives[0].is_maximized else "hv",
        },
        showlegend=False,
        hoverinfo="skip",
    )


def _clouds(trials: TrialColumns, there: Flags) -> Iterator[tuple[Flags, str, str]]:
    """Trials outside of the front by outcome: rows, name and colour."""
    is_whole = trials.words == COMPLETED
    for code in np.unique(trials.words[there]).tolist():
        own = there & (trials.words == code)
        word = ALL_WORDS[code]
        for chosen, name in (
            (own & ~(is_whole & trials.is_infeasible), shown(word)),
            (own & is_whole & trials.is_infeasible, f"{shown(word)}, infeasible"),
        ):
            if chosen.any():
                is_faded = name != shown(word)
                yield chosen, name, COLOURS["pruned" if is_faded else word]


def _cloud(
    kind: type[go.Scatter],
    x: Floats,
    y: Floats,
    chosen: Flags | Numbers,
    trials: TrialColumns,
    name: str,
    colour: str,
) -> go.Scatter:
    return kind(
        x=x[chosen],
        y=y[chosen],
        mode="markers",
        name=name,
        marker={"color": colour, "size": 7, "opacity": 0.8},
        customdata=trials.numbers[chosen],
        hovertemplate="trial %{customdata}<br>%{x:.6g}, %{y:.6g}<extra>%{fullData.name}</extra>",
    )
