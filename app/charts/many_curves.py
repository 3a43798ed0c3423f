"""The curves of many trials in one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import BEST, COLOURS, OTHER
from tuner.app.charts.style import dress, literal, name_ticks
from tuner.app.data.outcome_words import ALL_WORDS, COMPLETED, RUNNING, shown
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.curves import Curve, Curves

RUNG = OTHER
#: Total opacity of overlapping lines, and the bounds for one line.
_FADED, _PLAIN = (36.0, 0.06, 0.25), (60.0, 0.08, 0.5)
#: Maximum number of lines that are drawn without fading.
_FEW_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveAxes:
    """Titles and types of the axes."""

    name: str
    log_x: bool
    log_y: bool


def many_curves_figure(
    curves: Curves,
    trials: TrialColumns,
    axes: CurveAxes,
    *,
    rungs: Sequence[int],
    picked: int | None,
    revision: str,
) -> go.Figure:
    """A line per trial, by outcome; pruned trials are faded.

    Args:
        curves: Curves by trial number.
        trials: Trials, some of which have a curve.
        axes: Titles and types of the axes.
        rungs: Steps at which trials are compared.
        picked: A highlighted trial; its rivals are then faded.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    codes = np.unique(trials.words).tolist()
    order = {COMPLETED: 1, RUNNING: 2}
    for code in sorted(codes, key=lambda each: order.get(each, 0)):
        numbers = [n for n in trials.numbers[trials.words == code].tolist() if n in curves]
        if numbers:
            figure.add_trace(_group(curves, numbers, code, is_faded=picked is not None))
            figure.add_trace(_legend(len(numbers), code))
    if picked is not None and picked in curves:
        figure.add_trace(_picked(picked, curves[picked]))
    for rung in rungs:
        _add_rung(figure, rung, is_log=axes.log_x)
    dress(figure, revision=f"{revision} {axes}", height_px=560)
    figure.update_xaxes(title_text="Step (as reported)", type="log" if axes.log_x else "linear")
    figure.update_yaxes(title_text=literal(axes.name), type="log" if axes.log_y else "linear")
    name_ticks(figure)
    return figure


def _add_rung(figure: go.Figure, rung: int, *, is_log: bool) -> None:
    figure.add_vline(x=rung, line={"dash": "dot", "width": 1, "color": RUNG})
    figure.add_annotation(
        text=f"rung {rung}",
        # Of an annotation, and not of a line, Plotly wants the logarithm.
        x=math.log10(rung) if is_log else rung,
        xanchor="left",
        y=0,
        yref="y domain",
        yanchor="bottom",
        textangle=-90,
        showarrow=False,
        font={"size": 10, "color": RUNG},
    )


def _group(curves: Curves, numbers: Sequence[int], code: int, *, is_faded: bool) -> go.Scattergl:
    """All in one trace, with a gap after each: a thousand traces take a browser seconds."""
    word = ALL_WORDS[code]
    gap = np.array([np.nan])
    parts = [curves[number] for number in numbers]
    lengths = [len(part.steps) + 1 for part in parts]
    is_plain = code in (COMPLETED, RUNNING) and not is_faded
    return go.Scattergl(
        x=np.concatenate([each for part in parts for each in (part.steps, gap)]).astype("f4"),
        y=np.concatenate([each for part in parts for each in (part.values, gap)]).astype("f4"),
        customdata=np.repeat(np.array(numbers, dtype=np.int32), lengths),
        mode="lines+markers" if max(lengths) == 2 else "lines",
        connectgaps=False,
        name=shown(word),
        legendgroup=word,
        showlegend=False,
        opacity=_opacity(len(numbers), _PLAIN if is_plain else _FADED, is_faded=is_faded),
        line={"color": COLOURS[word], "width": 2 if code == RUNNING else 1},
        hovertemplate="trial %{customdata}<br>step %{x}<br>%{y:.6g}<extra>%{fullData.name}</extra>",
    )


def _legend(n_curves: int, code: int) -> go.Scattergl:
    """In its full colour: as faint as the curves themselves it could not be seen."""
    word = ALL_WORDS[code]
    return go.Scattergl(
        x=[None],
        y=[None],
        mode="lines",
        name=f"{shown(word)} ({n_curves})",
        legendgroup=word,
        line={"color": COLOURS[word], "width": 2},
    )


def _opacity(n_lines: int, bounds: tuple[float, float, float], *, is_faded: bool) -> float:
    together, least, most = bounds
    if n_lines <= _FEW_LINES and not is_faded:
        return 1.0
    return min(most, max(least, together / n_lines))


def _picked(number: int, curve: Curve) -> go.Scattergl:
    # Of the same kind as the others: in another layer of the figure it would be below them.
    return go.Scattergl(
        x=curve.steps,
        y=curve.values,
        mode="lines+markers",
        name=f"trial {number}",
        line={"color": BEST, "width": 3},
        marker={"size": 5},
        hovertemplate="step %{x}<br>%{y:.6g}<extra>%{fullData.name}</extra>",
    )
