"""The members of a population, and their copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.many_curves import CurveAxes
from tuner.app.charts.palette import BEST, COLOURS, OF_MANY, OTHER
from tuner.app.charts.style import dress, literal, name_ticks
from tuner.app.data.trials.curves import Curve, Curves
from tuner.app.data.trials.lineage import Lineage, Taken, descent

_LINK = COLOURS["pruned"]


def lineage_figure(
    curves: Curves, lineage: Lineage, axes: CurveAxes, *, picked: int | None, revision: str
) -> go.Figure:
    """A line per trial, in the colour of its first ancestor.

    Args:
        curves: Curves by trial number.
        lineage: Trials that replaced others.
        axes: Titles and types of the axes.
        picked: A trial whose training is highlighted, from its first step through all copies.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    figure = go.Figure()
    families = defaultdict[int, list[int]](list)
    for number in sorted(curves):
        families[list(descent(lineage, number))[-1][0]].append(number)
    is_faded = picked is not None and picked in curves
    colours = {
        number: OF_MANY[place % len(OF_MANY)]
        for place, members in enumerate(families.values())
        for number in members
    }
    for numbers in families.values():
        figure.add_trace(_family(curves, numbers, colours[numbers[0]], is_faded=is_faded))
    taken = [each for each in lineage.values() if each.number in curves]
    figure.add_trace(_links(curves, taken))
    figure.add_trace(_given_up(curves, lineage))
    figure.add_trace(_copies(curves, taken, colours))
    if picked is not None and is_faded:
        figure.add_trace(_training(curves, lineage, picked))
    dress(figure, revision=f"{revision} {axes}", height_px=560)
    figure.update_xaxes(title_text="Step (as reported)", type="log" if axes.log_x else "linear")
    figure.update_yaxes(title_text=literal(axes.name), type="log" if axes.log_y else "linear")
    name_ticks(figure)
    return figure


def _family(curves: Curves, numbers: Sequence[int], colour: str, *, is_faded: bool) -> go.Scattergl:
    parts = [curves[number] for number in numbers]
    x, y = _joined(parts)
    return go.Scattergl(
        x=x,
        y=y,
        customdata=np.repeat(
            np.array(numbers, dtype=np.int32), [len(part.steps) + 1 for part in parts]
        ),
        mode="lines",
        connectgaps=False,
        showlegend=False,
        opacity=0.3 if is_faded else 0.9,
        line={"color": colour, "width": 1.5},
        hovertemplate="trial %{customdata}<br>step %{x}<br>%{y:.6g}<extra></extra>",
    )


def _links(curves: Curves, taken: Iterable[Taken]) -> go.Scattergl:
    """Lines from the parent's state to a copy's first report."""
    parts = []
    for each in taken:
        parent = None if each.parent is None else curves.get(each.parent)
        if parent is not None:
            its, step = curves[each.number], each.origin.step
            steps = np.array([step, its.steps[0]], dtype=np.float64)
            parts.append(Curve(steps=steps, values=np.array([_at(parent, step), its.values[0]])))
    x, y = _joined(parts)
    return go.Scattergl(
        x=x,
        y=y,
        mode="lines",
        connectgaps=False,
        showlegend=False,
        hoverinfo="skip",
        line={"color": _LINK, "width": 1.5, "dash": "dot"},
    )


def _given_up(curves: Curves, lineage: Lineage) -> go.Scattergl:
    """Marks at the ends of replaced trials."""
    gone = {each.origin.replaces: each for each in lineage.values()}
    there = [number for number in sorted(gone) if number in curves]
    return _marks(
        [(number, curves[number], -1) for number in there],
        [f"trial {number}: trial {gone[number].number} took its place" for number in there],
        name=f"replaced ({len(there)})",
        marker={"symbol": "x-thin", "size": 8, "line": {"width": 2, "color": _LINK}},
    )


def _copies(curves: Curves, taken: Sequence[Taken], colours: dict[int, str]) -> go.Scattergl:
    return _marks(
        [(each.number, curves[each.number], 0) for each in taken],
        [_told(each) for each in taken],
        name=f"copy ({len(taken)})",
        marker={
            "symbol": "circle",
            "size": 8,
            "color": [colours[each.number] for each in taken] or OTHER,
        },
    )


def _told(taken: Taken) -> str:
    origin = taken.origin
    what = "a new configuration"
    if origin.parent is not None:
        begin = (
            f"at step {origin.step}" if taken.parent is not None else "started from the beginning"
        )
        what = f"a copy of trial {origin.parent} {begin}"
    changes = taken.changes.replace(", ", "<br>") or "the same parameters"
    return f"trial {taken.number}: {what},<br>in the place of trial {origin.replaces}<br>{changes}"


def _marks(
    points: Sequence[tuple[int, Curve, int]],
    told: Sequence[str],
    *,
    name: str,
    marker: dict[str, object],
) -> go.Scattergl:
    """One of each curve: the first or the last."""
    return go.Scattergl(
        x=[curve.steps[at] for _, curve, at in points],
        y=[curve.values[at] for _, curve, at in points],
        customdata=np.array([number for number, _, _ in points], dtype=np.int32),
        text=told,
        mode="markers",
        name=name,
        marker=marker,
        hovertemplate="%{text}<br>step %{x}<br>%{y:.6g}<extra></extra>",
    )


def _training(curves: Curves, lineage: Lineage, picked: int) -> go.Scattergl:
    """The training of one trial's model, from its first step."""
    parts, until = [], np.inf
    for number, after in descent(lineage, picked):
        if number in curves:
            its = curves[number]
            is_its = its.steps <= until
            parts.append(Curve(steps=its.steps[is_its], values=its.values[is_its]))
        until = after
    return go.Scattergl(
        x=np.concatenate([part.steps for part in reversed(parts)]),
        y=np.concatenate([part.values for part in reversed(parts)]),
        mode="lines",
        name=f"training of trial {picked}",
        line={"color": BEST, "width": 3},
        hovertemplate="step %{x}<br>%{y:.6g}<extra>%{fullData.name}</extra>",
    )


def _at(curve: Curve, step: int) -> float:
    """A value between the points that are drawn."""
    return float(np.interp(step, curve.steps, curve.values))


def _joined(parts: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """All in one trace, with a gap after each."""
    gap = np.array([np.nan])
    xs = [each for part in parts for each in (part.steps, gap)]
    ys = [each for part in parts for each in (part.values, gap)]
    return np.concatenate(xs or [gap]).astype("f4"), np.concatenate(ys or [gap]).astype("f4")
