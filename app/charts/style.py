"""What all figures have in common: colours that tell outcomes apart, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import plotly.graph_objects as go

from tuner.app.data.devices.timeline import ABANDONED

#: Chosen to be told apart on white and on black, also with red-green blindness (after Okabe and
#: Ito, https://jfly.uni-koeln.de/color/); a failure is always warm.
COLOURS: Mapping[str, str] = {
    "completed": "#2a78d6",
    "pruned": "#8e99a8",
    "running": "#1baf7a",
    "waiting": "#c0c7d0",
    "paused": "#c0c7d0",
    "failed": "#e34948",
    "out_of_memory": "#b0307a",
    "not_a_number": "#d05ba8",
    "timed_out": "#eda100",
    "failed_to_start": "#eb6834",
    "lost": "#7d5a3c",
    "cancelled": "#a8873f",
    ABANDONED: "#7d5a3c",
}
BEST = "#eb6834"
#: Of a study that another one is held against.
OTHER = "#9068e0"
#: Of trials or devices in turn: the same one on every figure, and those next to each other differ.
OF_MANY = (
    *("#2a78d6", "#e6a23c", "#1baf7a", "#9b6dd7", "#d9643a", "#4bb8cf"),
    *("#b8a04a", "#c95d9c", "#6f8f3f", "#5b6fb5", "#a86a52", "#7f95a8"),
)
Figure: TypeAlias = go.Figure
_HEIGHT_PX = 460


def to_json(figure: Figure) -> str:
    """For a browser; arrays are in it as numbers of their own kind, not as text."""
    text: str = figure.to_json(validate=False)
    return text


def dress(figure: go.Figure, *, revision: str, height_px: int = _HEIGHT_PX) -> go.Figure:
    """Gives a figure its common layout.

    Args:
        figure: Is changed.
        revision: As long as it stays the same, a refresh keeps the zoom and what was hidden
            (https://plotly.com/javascript/uirevision/).
        height_px: Of the whole figure.
    """
    figure.update_layout(
        uirevision=revision,
        height=height_px,
        margin={"l": 10, "r": 10, "t": 36, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        template="none",
    )
    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)
    return figure


def bar_above(title: str) -> dict[str, object]:
    """A bar of colours on top of its figure: at the side it takes the half of a phone."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "xpad": 0,
        "y": 1,
        "yanchor": "bottom",
        "ypad": 16,
        "len": 0.4,
        "thickness": 10,
        "title": {"text": title, "side": "top"},
    }


def name_ticks(figure: go.Figure) -> None:
    """Whole numbers on logarithmic axes: 20 and 0.0001, where Plotly has 2 and 100µ.

    Args:
        figure: Whose axes have their kinds already.
    """
    figure.for_each_xaxis(_name_ticks)
    figure.for_each_yaxis(_name_ticks)


def _name_ticks(axis: go.layout.XAxis | go.layout.YAxis) -> None:
    if axis.type == "log":
        axis.tickformat = "~g"


def instant(at_s: float) -> datetime:
    """Of seconds since the epoch."""
    # Without a zone: a browser would show one with a zone in its own.
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)
