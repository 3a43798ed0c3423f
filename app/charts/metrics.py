"""Any figure of trials against any other: points, curves, distributions, and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import BEST, COLOURS, OF_MANY, SYMBOLS
from tuner.app.charts.style import Titles, dress_with_titles
from tuner.app.data.columns import Flags, Floats
from tuner.app.data.metrics.curves import MetricCurve
from tuner.app.data.metrics.distribution import Distribution, Rates, ended_in
from tuner.app.data.outcome_words import ALL_WORDS, COMPLETED, shown
from tuner.app.data.trials.columns import TrialColumns

_MAX_SVG_POINTS = 2000
#: Beyond these the legend would hide the figure.
_MAX_IN_LEGEND = 12


def points_figure(
    trials: TrialColumns, x: Floats, y: Floats, titles: Titles, *, revision: str
) -> go.Figure:
    """A point for each trial that has both values.

    Args:
        trials: A study's trials.
        x: A value for each trial; NaN for missing ones.
        y: A value for each trial; NaN for missing ones.
        titles: Titles of both axes.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    kind = go.Scattergl if len(trials) > _MAX_SVG_POINTS else go.Scatter
    there = np.isfinite(x) & np.isfinite(y)
    codes = np.unique(trials.words[there]).tolist()
    # Those that completed are drawn last, over the others.
    for code in sorted(codes, key=lambda each: each == COMPLETED):
        own = there & (trials.words == code)
        word = ALL_WORDS[code]
        figure.add_trace(
            kind(
                x=x[own],
                y=y[own],
                mode="markers",
                name=shown(word),
                marker={"color": COLOURS[word], "symbol": SYMBOLS[word], "size": 7},
                customdata=trials.numbers[own],
                hovertemplate="trial %{customdata}<br>%{y:.6g}<br>at %{x:.6g}"
                "<extra>%{fullData.name}</extra>",
            )
        )
    return dress_with_titles(figure, titles, revision=revision)


def metric_curves_figure(
    curves: Mapping[int, MetricCurve], titles: Titles, *, is_smooth: bool, revision: str
) -> go.Figure:
    """Curves of a metric.

    Args:
        curves: Curves by trial number.
        titles: Titles of both axes.
        is_smooth: Whether to draw averages over faint lines of the reported values.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    for place, (number, curve) in enumerate(curves.items()):
        colour = OF_MANY[place % len(OF_MANY)]
        if is_smooth:
            figure.add_trace(_line(number, curve.x, curve.y, colour, is_faint=True))
        figure.add_trace(_line(number, curve.x, curve.smooth, colour, is_faint=False))
    figure = dress_with_titles(figure, titles, revision=revision)
    figure.update_layout(showlegend=len(curves) <= _MAX_IN_LEGEND)
    return figure


def _line(number: int, x: Floats, y: Floats, colour: str, *, is_faint: bool) -> go.Scatter:
    said = "as reported" if is_faint else f"trial {number}"
    return go.Scatter(
        x=x,
        y=y,
        name=f"trial {number}",
        legendgroup=str(number),
        showlegend=not is_faint,
        mode="lines" if len(x) > 1 else "markers",
        line={"color": colour, "width": 1 if is_faint else 1.8},
        opacity=0.3 if is_faint else 1.0,
        customdata=np.full(len(x), number),
        hovertemplate=f"trial {number}<br>%{{y:.6g}}<br>at %{{x:.6g}}<extra>{said}</extra>",
    )


def distribution_figure(
    lines: Mapping[str, Distribution], title: str, *, log_x: bool, revision: str
) -> go.Figure:
    """Cumulative distributions of values.

    Args:
        lines: Distributions by name.
        title: Title of the values.
        log_x: Whether their axis is logarithmic.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    for (name, line), colour in zip(lines.items(), (BEST, COLOURS["completed"]), strict=False):
        figure.add_trace(
            go.Scatter(
                x=line.x,
                y=100 * line.share,
                name=name,
                mode="lines+markers" if len(line.x) < 40 else "lines",
                line={"color": colour, "shape": "hv"},
                hovertemplate="%{y:.3g} % are at most %{x:.6g}<extra>%{fullData.name}</extra>",
            )
        )
    titles = Titles(x=title, y="Trials with at most this value (%)", log_x=log_x)
    figure = dress_with_titles(figure, titles, revision=revision)
    figure.update_yaxes(range=[0, 102])
    return figure


def rates_figure(rates: Rates, trials: TrialColumns, *, revision: str) -> go.Figure:
    """Stacked bars of trials that ended per hour, by outcome.

    Args:
        rates: The time bins.
        trials: All trials of the study.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    for word, own in _by_outcome(trials):
        n = ended_in(rates, trials, own)
        figure.add_trace(
            go.Bar(
                x=rates.begin_h,
                y=n / rates.length_h,
                width=rates.length_h,
                offset=0,
                name=shown(word),
                marker={"color": COLOURS[word]},
                customdata=np.stack([n, 60 * rates.length_h], axis=1),
                hovertemplate="%{customdata[0]:.0f} in %{customdata[1]:.3g} min: "
                "%{y:.4g} per hour<extra>%{fullData.name}</extra>",
            )
        )
    titles = Titles(x="Time since the first trial began (h)", y="Trials that ended, per hour")
    figure = dress_with_titles(figure, titles, revision=revision)
    figure.update_layout(barmode="stack")
    figure.update_xaxes(range=[0, float(rates.begin_h[-1]) + rates.whole_h])
    return figure


def _by_outcome(trials: TrialColumns) -> Sequence[tuple[str, Flags]]:
    codes = np.unique(trials.words[trials.is_finished]).tolist()
    ordered = sorted(codes, key=lambda each: each != COMPLETED)
    return [(ALL_WORDS[code], trials.words == code) for code in ordered]
