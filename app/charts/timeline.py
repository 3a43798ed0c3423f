"""What each device of a host did, and when it stood idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import plotly.graph_objects as go

from app.charts.style import COLOURS, dress
from app.data.device_use import Bar
from app.data.lease_columns import HostDevice
from app.data.words import shown
from tuner.view.text import duration

_ROW_PX, _FRAME_PX = 34, 110
#: Of the height of a row. What a wide trial holds touches, so that it looks like one thing.
_NARROW, _WIDE = 0.78, 1.0
_MAX_NAMED_BARS = 400


def timeline_figure(
    bars: Sequence[Bar],
    devices: Sequence[HostDevice],
    *,
    start_s: float,
    end_s: float,
    revision: str,
) -> go.Figure:
    """A row for each device of one host, the first one on top; gaps are idle time.

    Args:
        bars: Of these devices.
        devices: Of one host, also those that have no bar.
        start_s: Seconds since the epoch, as all instants here.
        end_s: The right edge.
        revision: While it stays the same a refresh keeps the zoom.
    """
    rows = {device.id: row for row, device in enumerate(devices)}
    figure = go.Figure()
    for word in dict.fromkeys(bar.word for bar in bars):
        own = [bar for bar in bars if bar.word == word]
        figure.add_trace(_trace(word, own, rows, is_named=len(bars) <= _MAX_NAMED_BARS))
    dress(figure, revision=revision, height_px=_FRAME_PX + _ROW_PX * len(devices))
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(
        title_text="Time (UTC)", type="date", range=[_instant(start_s), _instant(end_s)]
    )
    figure.update_yaxes(
        title_text="Device",
        tickvals=list(rows.values()),
        ticktext=[device.label for device in devices],
        range=[len(devices) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def _trace(word: str, bars: Sequence[Bar], rows: Mapping[int, int], *, is_named: bool) -> go.Bar:
    heights = [(_WIDE if len(bar.devices) > 1 else _NARROW) for bar in bars]
    return go.Bar(
        orientation="h",
        name=shown(word),
        y=[rows[bar.device_id] for bar in bars],
        base=[_instant(bar.start_s) for bar in bars],
        x=[bar.duration_s * 1000 for bar in bars],
        width=[height * bar.share for height, bar in zip(heights, bars, strict=True)],
        offset=[
            height * (bar.slot * bar.share - 0.5) for height, bar in zip(heights, bars, strict=True)
        ],
        marker={"color": COLOURS[word], "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"}},
        text=[_name(bar) for bar in bars] if is_named else None,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        customdata=[_told(bar) for bar in bars],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
    )


def _name(bar: Bar) -> str:
    return str(bar.trial) if bar.n_attempts == 1 else ""


def _told(bar: Bar) -> str:
    if bar.n_attempts > 1:
        return f"{bar.n_attempts} attempts, from trial {bar.trial} on, {duration(bar.duration_s)}"
    share = f", {bar.share:g} of the device" if bar.share < 1 else ""
    return (
        f"trial {bar.trial}, attempt {bar.attempt}<br>"
        f"{', '.join(bar.devices)}{share}<br>"
        f"{duration(bar.duration_s)} from {_instant(bar.start_s):%Y-%m-%d %H:%M:%S} UTC"
    )


def _instant(at_s: float) -> datetime:
    # Without a zone: a browser would show one with a zone in its own.
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)
