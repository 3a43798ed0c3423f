"""Figures of devices: idle times, colours of trials, heat maps."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from tests.unit.app.columns import NAN, bars_of, device, lease, leases
from tuner.app.charts.devices.heat_map import heat_map_figure
from tuner.app.charts.devices.timeline import timeline_figure
from tuner.app.charts.palette import COLOURS
from tuner.app.charts.zone import Zone
from tuner.app.data.devices.idle_time import IdleBar
from tuner.app.data.devices.samples import Bins, Window
from tuner.devices.idle_causes import CAUSE_WORDS, IdleCause

DEVICES = [device(0), device(1)]


def test_idle_times_lie_below_the_trials_with_their_cause() -> None:
    bars = bars_of(leases(lease(1, 0, 0, 10)))
    idle = [
        IdleBar(device_id=0, cause=IdleCause.PAUSED, start_s=10, end_s=20),
        IdleBar(device_id=1, cause=IdleCause.TAKEN, start_s=0, end_s=20),
        IdleBar(device_id=7, cause=IdleCause.LOST, start_s=0, end_s=20),
    ]
    figure = timeline_figure(bars, DEVICES, start_s=0, end_s=20, revision="s", idle=idle)
    assert [trace.name for trace in figure.data] == [
        "idle: used by other processes",
        "idle: paused",
        "completed",
    ]
    paused = figure.data[1]
    assert (list(paused.y), list(paused.base), list(paused.x)) == (
        [0],
        ["1970-01-01T00:00:10"],
        [10_000],
    )
    assert all(trace.marker.pattern.fillmode == "replace" for trace in figure.data[:2])
    assert len({trace.marker.pattern.shape for trace in figure.data}) == 3


def test_every_cause_has_a_colour_and_words_of_its_own() -> None:
    idle = [IdleBar(device_id=0, cause=each, start_s=0, end_s=1) for each in IdleCause]
    figure = timeline_figure([], DEVICES, start_s=0, end_s=1, revision="s", idle=idle)
    looks = {(trace.marker.color, trace.marker.pattern.shape) for trace in figure.data}
    assert len(looks) == len(IdleCause)
    assert len(set(CAUSE_WORDS.values())) == len(IdleCause)


def test_a_trial_has_its_colour_on_every_device_and_its_outcome_as_a_frame() -> None:
    found = leases(lease(1, 0, 0, 10), lease(1, 1, 0, 10), lease(2, 0, 10, 20, word="failed"))
    figure = timeline_figure(
        bars_of(found), DEVICES, start_s=0, end_s=20, revision="s", by_trial=True
    )
    completed, failed = figure.data
    assert len(set(completed.marker.color)) == 1
    assert set(failed.marker.color) != set(completed.marker.color)
    assert failed.marker.line.color == COLOURS["failed"]


def test_heat_map_has_a_cell_for_each_device_and_time() -> None:
    bins = Bins(
        device_ids=np.array([1, 0, 1, 9]),
        starts_s=np.array([100, 110, 120, 100]),
        covered_s=np.ones(4),
        utilization_pct=np.array([50.0, 75.0, NAN, 1.0]),
        memory_bytes=np.ones(4),
        memory_max_bytes=np.ones(4),
        energy_kwh=np.ones(4),
    )
    figure = heat_map_figure(
        bins,
        bins.utilization_pct,
        DEVICES,
        Window(start_s=100, end_s=130, width_s=10),
        title="Utilization",
        unit="%",
        most=100,
        revision="s",
    )
    (cells,) = figure.data
    assert list(cells.y) == ["GPU 0", "GPU 1"]
    assert np.array_equal(cells.z, [[NAN, 75, NAN], [50, NAN, NAN]], equal_nan=True)
    assert cells.colorbar.title.text == "Utilization (%)"
    assert figure.layout.xaxis.title.text == "Time (UTC)"


def test_a_timeline_in_local_time_says_utc_in_its_hover_text() -> None:
    idle = [IdleBar(device_id=1, cause=IdleCause.PAUSED, start_s=0, end_s=20)]
    figure = timeline_figure(
        bars_of(leases(lease(1, 0, 10, 20))),
        DEVICES,
        start_s=0,
        end_s=20,
        revision="s",
        idle=idle,
        zone=Zone(offset_s=-3.5 * 3600),
    )
    paused, completed = figure.data
    assert list(completed.base) == ["1969-12-31T20:30:10"]
    assert figure.layout.xaxis.range[0] == datetime(1969, 12, 31, 20, 30)
    assert figure.layout.xaxis.title.text == "Time (UTC-03:30)"
    assert "1969-12-31 20:30:10<br>(1970-01-01 00:00:10 UTC)" in completed.customdata[0]
    assert "1969-12-31 20:30:00<br>(1970-01-01 00:00:00 UTC)" in paused.customdata[0]
