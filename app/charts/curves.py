"""Reports of one trial, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from tuner.app.charts.palette import OF_MANY
from tuner.app.charts.style import dress, literal


def curve_figure(name: str, curve: Mapping[int, float], *, revision: str) -> go.Figure:
    """A curve, with gaps for NaN and infinite values."""
    steps = sorted(curve)
    values = [curve[step] if math.isfinite(curve[step]) else None for step in steps]
    figure = go.Figure(
        go.Scatter(
            x=steps,
            y=values,
            mode="lines+markers" if len(steps) < 100 else "lines",
            line={"color": OF_MANY[0], "width": 2},
            hovertemplate="step %{x}<br>%{y:.6g}<extra></extra>",
        )
    )
    dress(figure, revision=revision, height_px=280)
    figure.update_xaxes(title_text="Step (as reported)")
    figure.update_yaxes(title_text=literal(name))
    return figure
