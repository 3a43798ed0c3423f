"""Which user has which device of a machine: a colour for each user."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from tuner.app.charts.palette import OF_MANY
from tuner.app.charts.style import dress, literal
from tuner.shares.report import MachineShares

_FRAME_PX = 190
#: A GPU's id has 40 characters; a phone shows some of them.
_MAX_LABEL = 15


def users_figure(shares: MachineShares, labels: Mapping[str, str]) -> go.Figure | None:
    """A cell for each device that a tuner holds, hatched if borrowed; None for no device.

    Args:
        shares: Shares of the machine.
        labels: Names such as `GPU 0`, by device id.
    """
    if not shares.devices:
        return None
    figure = go.Figure()
    users = sorted({device.user for device in shares.devices})
    for number, user in enumerate(users):
        own = [device for device in shares.devices if device.user == user]
        figure.add_bar(
            name=literal(user),
            x=[device.device_id for device in own],
            y=[1] * len(own),
            marker={
                "color": OF_MANY[number % len(OF_MANY)],
                "pattern": {"shape": ["/" if device.is_borrowed else "" for device in own]},
            },
            customdata=[_words(device.is_borrowed, device.is_leaving) for device in own],
            hovertemplate="%{x}<br>%{customdata}<extra>%{fullData.name}</extra>",
        )
    dress(figure, revision=f"users {users}", height_px=_FRAME_PX)
    figure.update_layout(barmode="stack", showlegend=True, bargap=0.05)
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True)
    order = [device.device_id for device in shares.devices]
    figure.update_xaxes(
        title_text="Device",
        categoryorder="array",
        categoryarray=order,
        tickvals=order,
        ticktext=[labels.get(each) or _short(each) for each in order],
    )
    return figure


def _short(device_id: str) -> str:
    return device_id if len(device_id) <= _MAX_LABEL else f"{device_id[: _MAX_LABEL - 3]}..."


def _words(is_borrowed: bool, is_leaving: bool) -> str:
    return ("borrowed" if is_borrowed else "by right") + (", given back soon" if is_leaving else "")
