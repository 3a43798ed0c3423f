"""The layout that all figures share. Their colours: `tuner.app.charts.palette`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import plotly.graph_objects as go

Figure: TypeAlias = go.Figure
_HEIGHT_PX = 460


#: Plotly takes tags in any text for its own, also those in a parameter's name. As Plotly writes
#: them into JSON; those that the figures themselves use are left.
_TAG = re.compile(r"(?:<|\\u003c)(?!(?:/|\\u002f)?(?:br|b|i|extra)(?:>|\\u003e))")


def to_json(figure: Figure) -> str:
    """JSON for a browser; arrays keep their numeric types."""
    text: str = figure.to_json(validate=False)
    return _TAG.sub("&lt;", text)


def literal(text: str) -> str:
    """A name that Plotly shows literally, even if it looks like a tag."""
    return text.replace("<", "&lt;")


def shortened(name: str, most: int) -> str:
    """A name of at most so many characters, without its middle if it is longer."""
    if len(name) <= most:
        return name
    head = most // 2
    return f"{name[:head]}…{name[head + 1 - most :]}"


def dress(figure: go.Figure, *, revision: str, height_px: int = _HEIGHT_PX) -> go.Figure:
    """Applies the common layout to a figure.

    Args:
        figure: The figure, which is changed.
        revision: While it is unchanged, a refresh keeps the zoom and hidden traces
            (https://plotly.com/javascript/uirevision/).
        height_px: Height of the whole figure.
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
    # 0.00014 and 14,000, where Plotly writes 140µ and 14k.
    figure.update_xaxes(automargin=True, zeroline=False, exponentformat="e", minexponent=5)
    figure.update_yaxes(automargin=True, zeroline=False, exponentformat="e", minexponent=5)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Titles:
    """Titles of the axes."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


def dress_with_titles(figure: go.Figure, titles: Titles, *, revision: str) -> go.Figure:
    """Applies the common layout, a legend, and the titles and types of axes to a figure.

    Args:
        figure: The figure, which is changed.
        titles: As plain text.
        revision: See `dress`; other axes start with another zoom.
    """
    dress(figure, revision=f"{revision} {titles}")
    figure.update_xaxes(title_text=literal(titles.x), type="log" if titles.log_x else "linear")
    figure.update_yaxes(title_text=literal(titles.y), type="log" if titles.log_y else "linear")
    figure.update_layout(showlegend=True)
    name_ticks(figure)
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
    """Plain numbers on logarithmic axes: 20 and 0.0001, where Plotly writes 2 and 100µ.

    Args:
        figure: Its axes must have their types already.
    """
    figure.for_each_xaxis(_name_ticks)
    figure.for_each_yaxis(_name_ticks)


def _name_ticks(axis: go.layout.XAxis | go.layout.YAxis) -> None:
    if axis.type == "log":
        axis.tickformat = "~g"


def instant(at_s: float) -> datetime:
    """The UTC time of seconds since the epoch."""
    # Without a zone: a browser would show one with a zone in its own.
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)
