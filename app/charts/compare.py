"""Figures in which several trials or studies are lines of their own."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from tuner.app.charts.palette import OF_MANY
from tuner.app.charts.style import Titles, dress_with_titles
from tuner.app.data.compare.studies import Band
from tuner.app.data.convergence.series import BestSoFar
from tuner.app.data.trials.curves import Curve

#: In addition to the colour, so that lines differ in print too.
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def lines_figure(lines: Mapping[str, Curve], titles: Titles, *, revision: str) -> go.Figure:
    """Draws lines.

    Args:
        lines: Lines by name.
        titles: Titles of the axes.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    for place, (name, line) in enumerate(lines.items()):
        figure.add_trace(
            go.Scatter(
                x=line.steps,
                y=line.values,
                name=name,
                mode="lines+markers" if len(line.steps) < 40 else "lines",
                line=_line(place),
                marker={"size": 4},
                hovertemplate="%{x:.6g}<br>%{y:.6g}<extra>%{fullData.name}</extra>",
            )
        )
    return dress_with_titles(figure, titles, revision=revision)


def studies_figure(
    lines: Mapping[str, BestSoFar | Band], titles: Titles, *, revision: str
) -> go.Figure:
    """The best value so far of each study; for several runs, their median in a band.

    Args:
        lines: Lines by name.
        titles: Titles of the axes.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    for place, (name, line) in enumerate(lines.items()):
        if isinstance(line, Band):
            _add_band(figure, name, line, place)
        else:
            figure.add_trace(
                go.Scatter(
                    x=line.x,
                    y=line.y,
                    name=name,
                    mode="lines",
                    line={**_line(place), "shape": "hv"},
                    customdata=line.numbers,
                    hovertemplate="since trial %{customdata}<br>%{y:.6g}"
                    "<extra>%{fullData.name}</extra>",
                )
            )
    return dress_with_titles(figure, titles, revision=revision)


def _add_band(figure: go.Figure, name: str, band: Band, place: int) -> None:
    red, green, blue = hex_to_rgb(OF_MANY[place % len(OF_MANY)])
    edge = {"width": 0.5, "shape": "hv", "color": OF_MANY[place % len(OF_MANY)]}
    for values, fill, what in ((band.high, None, "highest"), (band.low, "tonexty", "lowest")):
        figure.add_trace(
            go.Scatter(
                x=band.x,
                y=values,
                name=f"{name}: {what}",
                legendgroup=name,
                showlegend=False,
                mode="lines",
                line=edge,
                fill=fill,
                fillcolor=f"rgba({red}, {green}, {blue}, 0.25)",
                hoverinfo="skip",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=band.x,
            y=band.median,
            name=f"{name} (median of {len(band.names)})",
            legendgroup=name,
            mode="lines",
            line={**_line(place), "shape": "hv"},
            customdata=[
                f"{low:.6g} to {high:.6g}" for low, high in zip(band.low, band.high, strict=True)
            ],
            hovertemplate="%{y:.6g}, %{customdata}<extra>%{fullData.name}</extra>",
        )
    )


def _line(place: int) -> dict[str, object]:
    colour, dash = OF_MANY[place % len(OF_MANY)], _DASHES[place % len(_DASHES)]
    return {"color": colour, "width": 2, "dash": dash}
