"""Hyperparameters of a population over the steps, with the copies between members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuner.app.charts.palette import COLOURS, OF_MANY
from tuner.app.charts.style import dress, literal, name_ticks
from tuner.app.data.trials.curves import Curves
from tuner.app.data.trials.lineage import Lineage, descent
from tuner.search_spaces import ParamValue

#: By the number of a trial.
ParamsByNumber: TypeAlias = Mapping[int, Mapping[str, ParamValue]]
#: More rows cannot be compared on one screen.
MAX_ROWS = 8
_ROW_PX, _FRAME_PX = 190, 90
_COPY = COLOURS["pruned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A trial's part of a training."""

    number: int
    #: Steps between which the trial trained with its parameters.
    first: float
    last: float
    #: The trial that it is a copy of; None for a new configuration.
    parent: int | None
    colour: str


def members_of(curves: Curves, lineage: Lineage) -> list[Member]:
    """The trials of a population, with one colour per family.

    Args:
        curves: Curves by trial number.
        lineage: Trials that replaced others.
    """
    families = defaultdict[int, list[int]](list)
    for number in sorted(curves):
        families[list(descent(lineage, number))[-1][0]].append(number)
    return [
        _member(curves, lineage, number, OF_MANY[place % len(OF_MANY)])
        for place, numbers in enumerate(families.values())
        for number in numbers
    ]


def _member(curves: Curves, lineage: Lineage, number: int, colour: str) -> Member:
    steps, taken = curves[number].steps, lineage.get(number)
    parent = taken.parent if taken else None
    first = float(taken.origin.step) if taken and parent is not None else float(steps[0])
    return Member(number=number, first=first, last=float(steps[-1]), parent=parent, colour=colour)


def schedule_figure(
    members: Sequence[Member],
    params: ParamsByNumber,
    names: Sequence[str],
    *,
    log_names: frozenset[str],
    revision: str,
) -> go.Figure:
    """A row for each parameter, a horizontal line for each trial, a dotted one for each copy.

    Args:
        members: From `members_of`.
        params: Their parameters.
        names: Parameters in the order of the rows.
        log_names: Those with a logarithmic axis.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    names = names[:MAX_ROWS]
    figure = make_subplots(rows=len(names), cols=1, shared_xaxes=True, vertical_spacing=0.04)
    for row, name in enumerate(names, start=1):
        own = [each for each in members if name in params.get(each.number, {})]
        figure.add_trace(_copies(own, params, name), row=row, col=1)
        by_colour = defaultdict[str, list[Member]](list)
        for each in own:
            by_colour[each.colour].append(each)
        for some in by_colour.values():
            figure.add_trace(_lines(some, params, name), row=row, col=1)
        kind = "log" if name in log_names else "-"
        figure.update_yaxes(title_text=literal(name), type=kind, row=row, col=1)
    dress(figure, revision=f"{revision} schedule", height_px=_FRAME_PX + _ROW_PX * len(names))
    figure.update_layout(showlegend=False, meta={"no_sketch": True})
    figure.update_xaxes(title_text="Step (as reported)", row=len(names), col=1)
    name_ticks(figure)
    return figure


def _lines(members: Sequence[Member], params: ParamsByNumber, name: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[ParamValue | None] = []
    told: list[str] = []
    for each in members:
        value = params[each.number][name]
        x += [each.first, each.last, None]
        y += [value, value, None]
        parent = "" if each.parent is None else f"<br>copied from trial {each.parent}"
        about = f"trial {each.number}{parent}, steps {each.first:g} to {each.last:g}"
        told += [about] * 3
    return go.Scatter(
        x=x,
        y=[str(each) if isinstance(each, bool) else each for each in y],
        customdata=[each.number for each in members for _ in range(3)],
        text=told,
        mode="lines+markers",
        connectgaps=False,
        line={"color": members[0].colour, "width": 2},
        marker={"size": 4},
        hovertemplate="%{text}<br>%{y}<extra></extra>",
    )


def _copies(members: Sequence[Member], params: ParamsByNumber, name: str) -> go.Scatter:
    """From the value of a parent to the value of its copy, at the step of the copy."""
    x: list[float | None] = []
    y: list[ParamValue | None] = []
    for each in members:
        parent = params.get(each.parent, {}) if each.parent is not None else {}
        if name in parent:
            x += [each.first, each.first, None]
            y += [parent[name], params[each.number][name], None]
    return go.Scatter(
        x=x,
        y=[str(each) if isinstance(each, bool) else each for each in y],
        mode="lines",
        connectgaps=False,
        hoverinfo="skip",
        line={"color": _COPY, "width": 1.5, "dash": "dot"},
    )
