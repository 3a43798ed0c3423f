"""Activity and idle times of each device of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import COLOURS, HATCHINGS, OF_MANY, text_on
from tuner.app.charts.style import dress
from tuner.app.charts.zone import IN_UTC, Zone
from tuner.app.data.devices.idle_time import IdleBar
from tuner.app.data.devices.leases import HostDevice
from tuner.app.data.devices.timeline import Bar
from tuner.app.data.outcome_words import shown
from tuner.devices.idle_causes import CAUSE_WORDS, IdleCause
from tuner.terminal.wording import duration

_ROW_PX, _FRAME_PX = 34, 110
#: Fractions of a row's height. Bars of a wide trial touch, so that it looks like one.
_NARROW, _WIDE, _IDLE = 0.78, 1.0, 0.4
_HATCH_PX = 5
_MAX_NAMED_BARS = 400
#: A number that would have to be smaller to fit into its bar is left out.
_LEAST_TEXT_PX = 8


def timeline_figure(
    bars: Sequence[Bar],
    devices: Sequence[HostDevice],
    *,
    start_s: float,
    end_s: float,
    revision: str,
    idle: Sequence[IdleBar] = (),
    by_trial: bool = False,
    zone: Zone = IN_UTC,
    row_title: str = "Device",
) -> go.Figure:
    """A row for each device of one host, the first on top; gaps are idle time.

    Args:
        bars: Bars of these devices.
        devices: Devices of one host, including those without a bar.
        start_s: Left edge, in seconds since the epoch, like all times here.
        end_s: Right edge.
        revision: While it is unchanged, a refresh keeps the zoom.
        idle: Idle times with causes.
        by_trial: Whether colours are by trial, with the outcome as a frame; else by outcome.
        zone: Time zone of the axis. Hover texts include UTC.
        row_title: Title of the rows.
    """
    rows = {device.id: row for row, device in enumerate(devices)}
    figure = go.Figure()
    for cause in IdleCause:
        gaps = [bar for bar in idle if bar.cause is cause and bar.device_id in rows]
        if gaps:
            figure.add_trace(_gaps(cause, gaps, rows, zone))
    for word in dict.fromkeys(bar.word for bar in bars):
        own = [bar for bar in bars if bar.word == word]
        trace = _trace(word, own, rows, zone, is_named=len(bars) <= _MAX_NAMED_BARS)
        if by_trial:
            colours = [OF_MANY[bar.trial % len(OF_MANY)] for bar in own]
            trace.insidetextfont = {"color": [text_on(each) for each in colours]}
            trace.marker = {"color": colours, "line": {"width": 2, "color": COLOURS[word]}}
        figure.add_trace(trace)
    dress(figure, revision=revision, height_px=_FRAME_PX + _ROW_PX * len(devices))
    figure.update_layout(
        barmode="overlay", bargap=0, uniformtext={"minsize": _LEAST_TEXT_PX, "mode": "hide"}
    )
    figure.update_xaxes(
        title_text=f"Time ({zone.name})",
        type="date",
        range=[zone.instant(start_s), zone.instant(end_s)],
    )
    figure.update_yaxes(
        title_text=row_title,
        tickvals=list(rows.values()),
        ticktext=[device.label for device in devices],
        range=[len(devices) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def _trace(
    word: str, bars: Sequence[Bar], rows: Mapping[int, int], zone: Zone, *, is_named: bool
) -> go.Bar:
    heights = np.array([_WIDE if len(bar.devices) > 1 else _NARROW for bar in bars])
    shares, slots = (
        np.array(each) for each in zip(*((b.share, b.slot) for b in bars), strict=True)
    )
    return go.Bar(
        orientation="h",
        name=shown(word),
        y=np.array([rows[bar.device_id] for bar in bars]),
        # Text: Plotly takes a number for an instant, and adds the zone of the browser to it.
        base=[zone.instant(bar.start_s).isoformat() for bar in bars],
        x=np.array([bar.duration_s * 1000 for bar in bars]),
        width=heights * shares,
        offset=heights * (slots * shares - 0.5),
        marker={"color": COLOURS[word], "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"}},
        text=[_name(bar) for bar in bars] if is_named else None,
        textposition="inside",
        insidetextfont={"color": text_on(COLOURS[word])},
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        customdata=[_told(bar, zone) for bar in bars],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
    )


def _gaps(cause: IdleCause, gaps: Sequence[IdleBar], rows: Mapping[int, int], zone: Zone) -> go.Bar:
    hatching = HATCHINGS[cause]
    return go.Bar(
        orientation="h",
        name=f"idle: {CAUSE_WORDS[cause]}",
        y=np.array([rows[gap.device_id] for gap in gaps]),
        base=[zone.instant(gap.start_s).isoformat() for gap in gaps],
        x=np.array([gap.duration_s * 1000 for gap in gaps]),
        width=_IDLE,
        offset=-_IDLE / 2,
        marker={
            "color": hatching.colour,
            "line": {"width": 0.5, "color": hatching.colour},
            "pattern": {
                "shape": hatching.shape,
                "fillmode": "replace",
                "fgcolor": hatching.colour,
                "size": _HATCH_PX,
            },
        },
        customdata=[f"{duration(gap.duration_s)} from {_from(gap.start_s, zone)}" for gap in gaps],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
    )


def _name(bar: Bar) -> str:
    return str(bar.trial) if bar.n_attempts == 1 else ""


def _told(bar: Bar, zone: Zone) -> str:
    if not bar.attempt:
        return _told_of_trials(bar, zone)
    if bar.n_attempts > 1:
        return f"{bar.n_attempts} attempts, from trial {bar.trial} on, {duration(bar.duration_s)}"
    share = f", {bar.share:g} of the device" if bar.share < 1 else ""
    return (
        f"trial {bar.trial}, attempt {bar.attempt}<br>"
        f"{', '.join(bar.devices)}{share}<br>"
        f"{duration(bar.duration_s)} from {_from(bar.start_s, zone)}"
    )


def _told_of_trials(bar: Bar, zone: Zone) -> str:
    """Hover text without attempts and devices, for a database that has none."""
    several = f"{bar.n_attempts} trials, the first is trial {bar.trial}"
    what = several if bar.n_attempts > 1 else f"trial {bar.trial}"
    return f"{what}<br>{duration(bar.duration_s)} from {_from(bar.start_s, zone)}"


def _from(at_s: float, zone: Zone) -> str:
    """`2026-03-01 14:00:00, 12:00:00 UTC`"""
    utc = IN_UTC.instant(at_s)
    if zone == IN_UTC:
        return f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return f"{zone.instant(at_s):%Y-%m-%d %H:%M:%S}<br>({utc:%Y-%m-%d %H:%M:%S} UTC)"
