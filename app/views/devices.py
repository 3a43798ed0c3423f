"""What every device did: a timeline for each host, and totals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from app.charts.timeline import timeline_figure
from app.data.device_use import Bar, DeviceTotal, bars_of, by_outcome, drawable, totals, within
from app.data.lease_columns import HostDevice, Leases
from app.data.words import shown as shown_word
from app.views import shell
from app.views.shell import Shown

_HOUR_S = 3600.0
_SPANS: dict[str, float | None] = {
    "all": None,
    "10 min": 600.0,
    "1 h": _HOUR_S,
    "6 h": 6 * _HOUR_S,
    "1 d": 24 * _HOUR_S,
    "7 d": 168 * _HOUR_S,
}


def page() -> None:
    st.title("Devices")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        span = st.segmented_control("The last", list(_SPANS), default="all") or "all"
        is_of_all = st.toggle("all studies", help="Of this database, not this study alone.")
    shell.live("devices", lambda: _devices(shown, span, is_of_all=is_of_all))


def _devices(shown: Shown, span: str, *, is_of_all: bool) -> None:
    now = shell.now()
    leases = shown.look.leases(None if is_of_all else shown.study, now)
    bars = bars_of(leases)
    if not bars:
        st.info("The tuner has given no device to a trial of this study yet.")
        return
    start_s, end_s = _window(bars, leases, _SPANS[span], now)
    bars = within(bars, start_s, end_s)
    found = totals(bars, leases.devices, end_s - start_s)
    _sums(found)
    for host in dict.fromkeys(device.host for device in leases.devices.values()):
        devices = [each.device for each in found if each.device.host == host]
        if devices:
            st.subheader(host)
            revision = f"{shown.revision} {host} {span} {is_of_all}"
            _timeline(host, devices, bars, start_s, end_s, revision=revision)
    _table(found)


def _window(
    bars: Sequence[Bar], leases: Leases, span_s: float | None, now: datetime
) -> tuple[float, float]:
    """Of a study that nobody works on: up to its end, not to this day."""
    end_s = now.timestamp() if leases.living else max(bar.end_s for bar in bars)
    start_s = min(bar.start_s for bar in bars) if span_s is None else end_s - span_s
    return start_s, max(end_s, start_s + 1)


def _timeline(
    host: str,
    devices: Sequence[HostDevice],
    bars: Sequence[Bar],
    start_s: float,
    end_s: float,
    *,
    revision: str,
) -> None:
    ids = {device.id for device in devices}
    own = drawable([bar for bar in bars if bar.device_id in ids])
    figure = timeline_figure(own, devices, start_s=start_s, end_s=end_s, revision=revision)
    st.plotly_chart(figure, key=f"timeline {host}")


def _sums(found: Sequence[DeviceTotal]) -> None:
    busy_s = sum(each.busy_s for each in found)
    span_s = sum(each.span_s for each in found)
    with st.container(horizontal=True):
        st.metric(
            "device-hours",
            f"{busy_s / _HOUR_S:,.4f}".rstrip("0").rstrip(".")
            if busy_s < _HOUR_S
            else f"{busy_s / _HOUR_S:,.1f}",
        )
        if span_s:
            st.metric("busy", f"{100 * busy_s / span_s:.0f} %")
        for word, spent_s in by_outcome(found).items():
            st.metric(shown_word(word), f"{100 * spent_s / busy_s if busy_s else 0:.1f} %")


def _table(found: Sequence[DeviceTotal]) -> None:
    columns: dict[str, list[object]] = {
        "host": [each.device.host for each in found],
        "device": [each.device.label for each in found],
        "name": [each.device.name for each in found],
        "attempts": [each.n_attempts for each in found],
        "device-hours": [each.busy_s / _HOUR_S for each in found],
        "idle (h)": [each.idle_s / _HOUR_S for each in found],
        "busy": [100 * each.busy_s / each.span_s for each in found],
    }
    config = {
        "busy": st.column_config.ProgressColumn(
            "busy (%)", format="%.0f %%", min_value=0, max_value=100
        ),
        "device-hours": st.column_config.NumberColumn(format="%.3g"),
        "idle (h)": st.column_config.NumberColumn(format="%.3g"),
    }
    st.dataframe(columns, hide_index=True, column_config=config, key="device_totals")
