"""Usage of devices by one trial, over the time of its attempts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import OF_MANY
from tuner.app.charts.style import dress, instant
from tuner.app.data.columns import Floats
from tuner.app.data.convergence.series import unit_of
from tuner.app.data.devices.trial_use import DeviceUse, TrialUse

_PANEL_PX, _FRAME_PX = 170, 110
#: Gap between two panels, as a fraction of the height.
_GAP = 0.08
_GIB = 2**30
#: The names of more attempts would overlap.
_MAX_NAMED = 8


def trial_use_figure(use: TrialUse, *, revision: str) -> go.Figure:
    """A line for each device: its utilization, and its memory below.

    Values that no device reports have no panel.

    Args:
        use: With at least one device.
        revision: While it is unchanged, a refresh keeps the zoom.
    """
    unit_s, unit = unit_of(use.length_s)
    panels = [
        ("Utilization (%)", [each.utilization_pct for each in use.devices]),
        ("Memory (GiB)", [each.memory_bytes / _GIB for each in use.devices]),
    ]
    panels = [(title, all_) for title, all_ in panels if any(np.isfinite(e).any() for e in all_)]
    figure = go.Figure()
    for place, (_, figures) in enumerate(panels):
        _add_lines(figure, use.devices, figures, unit_s, place)
    dress(figure, revision=revision, height_px=_FRAME_PX + _PANEL_PX * len(panels))
    height = (1 + _GAP) / max(1, len(panels))
    for place, (title, _) in enumerate(panels):
        top = 1 - place * height
        figure.update_layout(
            {
                _axis("yaxis", place): {
                    "title": {"text": title},
                    "domain": [max(0.0, top - height + _GAP), top],
                    "rangemode": "tozero",
                    "automargin": True,
                    "zeroline": False,
                }
            }
        )
    below = _axis("y", max(0, len(panels) - 1))
    title = f"Time in attempts ({unit})"
    figure.update_xaxes(title_text=title, anchor=below, rangemode="tozero")
    figure.update_layout(meta={"no_sketch": True}, showlegend=len(use.devices) > 1)
    _part_attempts(figure, use, unit_s)
    return figure


def _add_lines(
    figure: go.Figure,
    devices: Sequence[DeviceUse],
    figures: Sequence[Floats],
    unit_s: float,
    place: int,
) -> None:
    is_of_one_host = len({each.device.host for each in devices}) == 1
    for number, (each, values) in enumerate(zip(devices, figures, strict=True)):
        label = (
            each.device.label if is_of_one_host else f"{each.device.label} of {each.device.host}"
        )
        figure.add_trace(
            go.Scatter(
                x=each.elapsed_s / unit_s,
                y=values,
                yaxis=_axis("y", place),
                name=label,
                legendgroup=label,
                showlegend=not place,
                mode="lines" if np.isfinite(values).sum() > 1 else "markers",
                line={"color": OF_MANY[number % len(OF_MANY)], "width": 1.5},
                customdata=[f"{instant(at):%Y-%m-%d %H:%M:%S} UTC" for at in each.at_s.tolist()],
                hovertemplate="%{y:.3g}<br>%{customdata}<extra>%{fullData.name}</extra>",
            )
        )


def _axis(name: str, place: int) -> str:
    return name if not place else f"{name}{place + 1}"


def _part_attempts(figure: go.Figure, use: TrialUse, unit_s: float) -> None:
    """A line at the start of each attempt after the first."""
    for number, begin_s in list(use.begins_s.items())[1:]:
        figure.add_vline(
            x=begin_s / unit_s,
            line={"width": 1, "dash": "dot", "color": OF_MANY[-1]},
            annotation={"text": f"attempt {number}", "font": {"size": 10}}
            if len(use.begins_s) <= _MAX_NAMED
            else None,
            annotation_position="top right",
        )
