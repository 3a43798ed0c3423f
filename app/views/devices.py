"""Activity of every device: now, a timeline for each host, heat maps, and totals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import streamlit as st

from tuner.app.charts.devices.heat_map import heat_map_figure
from tuner.app.charts.devices.timeline import timeline_figure
from tuner.app.charts.machine.users import users_figure
from tuner.app.data.devices.allocations import allocation_table
from tuner.app.data.devices.history import History
from tuner.app.data.devices.idle_time import idle_bars, idle_within, with_idle, with_use
from tuner.app.data.devices.leases import HostDevice, Leases
from tuner.app.data.devices.now import devices_now, now_table
from tuner.app.data.devices.samples import window_of
from tuner.app.data.devices.shares import machine_shares, users_table
from tuner.app.data.devices.timeline import (
    DeviceTotal,
    Spans,
    by_cause,
    by_outcome,
    drawable,
    spans_of,
    totals,
)
from tuner.app.data.devices.trial_lanes import MAX_LANES, trial_lanes
from tuner.app.data.digits import four_digits
from tuner.app.data.outcome_words import shown as shown_word
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.local_time import browser_zone
from tuner.app.views.shell import Shown
from tuner.devices.idle_causes import CAUSE_WORDS

_HOUR_S = 3600.0
_GIB = 2**30
_SPANS: dict[str, float | None] = {
    "all": None,
    "10 min": 600.0,
    "1 h": _HOUR_S,
    "6 h": 6 * _HOUR_S,
    "1 d": 24 * _HOUR_S,
    "7 d": 168 * _HOUR_S,
}
_OUTCOME, _TRIAL = "outcome", "trial"
_UTILIZATION, _MEMORY = "utilization", "memory"

_WRONG_RULES = (
    "The rules by which this machine is divided among its users cannot be read. Run: "
    "`tuner shares check`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The user's choice."""

    span: str
    is_of_all: bool
    colour: str
    heat: str

    def revision(self, shown: Shown, host: str) -> str:
        return f"{shown.revision} {host} {self.span} {self.is_of_all}"


def page() -> None:
    st.title("Devices")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        span = shell.choice("The last", list(_SPANS), key="last")
        colour = shell.choice("Colour", [_OUTCOME, _TRIAL], key="colour")
        heat = shell.choice("Heat map", [_UTILIZATION, _MEMORY], key="heat")
        is_of_all = st.toggle(
            "all studies",
            help="Of this database, not this study alone.",
            key="all_studies",
            bind="query-params",
        )
    asked = _Asked(span=span, is_of_all=is_of_all, colour=colour, heat=heat)
    shell.live("devices", lambda: _devices(shown, asked))


def _devices(shown: Shown, asked: _Asked) -> None:
    now = shell.now()
    study = None if asked.is_of_all else shown.study
    _allocations(shown, now)
    leases = shown.look.leases(study, now)
    if not len(leases.columns):
        _trials_alone(shown, now)
        return
    start_s, end_s = _edges(leases, _SPANS[asked.span], now)
    history = shown.look.device_history.read(study, window_of(start_s, end_s, now.timestamp()), now)
    spans = spans_of(leases, start_s, end_s)
    idle = idle_within(history.idle, start_s, end_s)
    seen = {*idle.device_ids.tolist(), *history.bins.device_ids.tolist()}
    found = with_idle(totals(spans, leases.devices, end_s - start_s, seen=seen), idle)
    found = with_use(found, history.bins)
    _sums(found)
    _now(leases, history, now)
    _users({device.device_id: device.label for device in leases.devices.values()})
    for host in dict.fromkeys(device.host for device in leases.devices.values()):
        devices = [each.device for each in found if each.device.host == host]
        if devices:
            st.subheader(host)
            _timeline(shown, asked, host, devices, spans, leases, history, (start_s, end_s))
            _heat_map(shown, asked, host, devices, history)
    _table(found)


def _trials_alone(shown: Shown, now: datetime) -> None:
    """For studies without devices of the tuner, such as those of Optuna alone."""
    found = trial_lanes(shown.look.trials(shown.study), now)
    if found is None:
        st.info("No trial of this study has started yet.")
        return
    st.caption(
        "No devices are recorded for this study. The timeline shows when its trials ran; trials "
        "at the same time have a row each."
    )
    if found.n_left_out:
        st.caption(f"Not shown: {found.n_left_out} trials, as over {MAX_LANES} ran at once.")
    figure = timeline_figure(
        found.bars,
        found.lanes,
        start_s=found.start_s,
        end_s=found.end_s,
        revision=f"{shown.revision} trials",
        zone=browser_zone(),
        row_title="Trials at the same time",
    )
    show_figure(figure, key="timeline of trials")


def _edges(leases: Leases, span_s: float | None, now: datetime) -> tuple[float, float]:
    """Edges of the time axis; for an inactive study up to its end, not to the current time."""
    ends = leases.ends_s()
    end_s = now.timestamp() if leases.living else float(np.nanmax(ends))
    start_s = float(leases.columns.started_at_s.min()) if span_s is None else end_s - span_s
    return start_s, max(end_s, start_s + 0.001)


def _allocations(shown: Shown, now: datetime) -> None:
    """Shows allocations, if there are any."""
    if found := shown.look.allocations(shown.study):
        st.subheader("Allocations")
        minutes = st.column_config.NumberColumn(format="%.0f")
        st.dataframe(
            allocation_table(found, now),
            hide_index=True,
            placeholder="",
            column_config={"minutes": minutes, "minutes left": minutes},
            key="allocations",
        )


def _now(leases: Leases, history: History, now: datetime) -> None:
    """Shows current activity, unless no dispatcher works on the study."""
    found = devices_now(leases, history.idle, history.present, now.timestamp())
    if leases.living and found:
        columns = now_table(found)
        config = {
            name: st.column_config.NumberColumn(format="%.0f")
            for name in columns
            if name.endswith(")") and name != "memory (GiB)"
        }
        config["memory (GiB)"] = st.column_config.NumberColumn(format="%.2f")
        st.dataframe(
            columns, hide_index=True, placeholder="", column_config=config, key="devices_now"
        )


def _users(labels: Mapping[str, str]) -> None:
    """Devices of the dashboard's machine by user, with a colour for each."""
    shares = machine_shares(os.environ, lambda _: st.warning(_WRONG_RULES))
    if shares is None:
        return
    figure = users_figure(shares, labels)
    hatched = "" if figure is None else " Borrowed devices are hatched."
    st.caption(f"Users of this machine, by its rules.{hatched}")
    if figure is not None:
        show_figure(figure, key="users")
    st.dataframe(users_table(shares), hide_index=True, key="users_table")


def _timeline(
    shown: Shown,
    asked: _Asked,
    host: str,
    devices: Sequence[HostDevice],
    spans: Spans,
    leases: Leases,
    history: History,
    edges: tuple[float, float],
) -> None:
    own = spans.where(np.isin(spans.device_ids, [device.id for device in devices]))
    figure = timeline_figure(
        drawable(own, leases.devices),
        devices,
        start_s=edges[0],
        end_s=edges[1],
        revision=asked.revision(shown, host),
        idle=idle_bars(idle_within(history.idle, *edges), *edges),
        by_trial=asked.colour == _TRIAL,
        zone=browser_zone(),
    )
    show_figure(figure, key=f"timeline {host}")


def _heat_map(
    shown: Shown, asked: _Asked, host: str, devices: Sequence[HostDevice], history: History
) -> None:
    own = history.bins.where(np.isin(history.bins.device_ids, [device.id for device in devices]))
    is_memory = asked.heat == _MEMORY
    figures = own.memory_bytes / _GIB if is_memory else own.utilization_pct
    if not np.isfinite(figures).any():
        st.caption(f"No {asked.heat} of these devices was recorded in this time.")
        return
    figure = heat_map_figure(
        own,
        figures,
        devices,
        history.window,
        title="Memory" if is_memory else "Utilization",
        unit="GiB" if is_memory else "%",
        most=max(float(np.nanmax(figures)), 1e-3) if is_memory else 100.0,
        revision=f"{asked.revision(shown, host)} {asked.heat}",
        zone=browser_zone(),
    )
    show_figure(figure, key=f"heat map {host}")


def _sums(found: Sequence[DeviceTotal]) -> None:
    held_s = sum(each.held_s for each in found)
    span_s = sum(each.span_s for each in found)
    with st.container(horizontal=True):
        st.metric("device-hours", _hours(held_s))
        if span_s:
            computing_s = sum(each.computing_s for each in found)
            st.metric("busy (%)", f"{100 * computing_s / span_s:.0f}")
        told = [each for each in found if each.utilization_pct is not None]
        if told:
            mean = sum(each.utilization_pct or 0.0 for each in told) / len(told)
            st.metric("utilization (%)", f"{mean:.0f}")
        energies = [each.energy_kwh for each in found if each.energy_kwh is not None]
        if energies:
            st.metric(
                "device energy (kWh)",
                four_digits(sum(energies)),
                help="Of whole devices while a dispatcher watched them, also while they were idle "
                "or ran other programs. A budget counts the energy of trials (page Control).",
            )
        for word, spent_s in by_outcome(found).items():
            st.metric(
                f"{shown_word(word)} (% of trial time)",
                f"{100 * spent_s / held_s if held_s else 0:.1f}",
            )
    causes = [
        f"{CAUSE_WORDS[cause]} {100 * spent_s / span_s:.1f} %"
        for cause, spent_s in by_cause(found).items()
        if span_s and spent_s / span_s >= 0.0005
    ]
    if causes:
        st.caption(f"Without a trial that computes, of all time: {', '.join(causes)}.")


def _hours(held_s: float) -> str:
    if held_s < _HOUR_S:
        return f"{held_s / _HOUR_S:,.4f}".rstrip("0").rstrip(".")
    return f"{held_s / _HOUR_S:,.1f}"


def _table(found: Sequence[DeviceTotal]) -> None:
    columns: dict[str, list[object]] = {
        "host": [each.device.host for each in found],
        "device": [each.device.label for each in found],
        "name": [each.device.name for each in found],
        "attempts": [each.n_attempts for each in found],
        "device-hours": [each.held_s / _HOUR_S for each in found],
        "busy (%)": [100 * each.computing_s / each.span_s for each in found],
        "utilization (%)": [each.utilization_pct for each in found],
        "most memory (GiB)": [
            None if each.memory_max_bytes is None else each.memory_max_bytes / _GIB
            for each in found
        ],
        "device energy (kWh)": [each.energy_kwh for each in found],
        "idle (h)": [(each.span_s - each.computing_s) / _HOUR_S for each in found],
        "idle for": [_main_cause(each) for each in found],
    }
    config = {
        "busy (%)": st.column_config.ProgressColumn(
            "busy (%)", format="%.0f %%", min_value=0, max_value=100
        ),
        **{
            name: st.column_config.NumberColumn(format="%.4g")
            for name in (
                "device-hours",
                "utilization (%)",
                "most memory (GiB)",
                "device energy (kWh)",
            )
        },
        "idle (h)": st.column_config.NumberColumn(format="%.4g"),
    }
    st.dataframe(
        columns, hide_index=True, placeholder="", column_config=config, key="device_totals"
    )


def _main_cause(total: DeviceTotal) -> str:
    """The cause of most of the time without a trial."""
    cause, longest_s = max(total.by_cause.items(), key=lambda item: item[1], default=(None, 0.0))
    if total.unattended_s > longest_s or cause is None:
        return "no dispatcher" if total.unattended_s > 0.001 * total.span_s else ""
    return CAUSE_WORDS[cause]
