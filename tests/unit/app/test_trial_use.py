"""The usage chart of one trial, from columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.app.columns import NAN, device, lease, leases
from tuner.app.charts.devices.trial_use import trial_use_figure
from tuner.app.data.devices.leases import HostDevice
from tuner.app.data.devices.trial_use import DeviceUse, TrialUse, held_by


def a_use(
    *devices: HostDevice, percent: Sequence[float] = (50, 75, NAN), gib: Sequence[float] = (1, 2, 3)
) -> TrialUse:
    each = [
        DeviceUse(
            device=one,
            elapsed_s=np.array([0.0, 60.0, 240.0]),
            at_s=np.array([1000.0, 1060.0, 1240.0]),
            utilization_pct=np.array(percent, dtype=float),
            memory_bytes=2**30 * np.array(gib, dtype=float),
        )
        for one in devices
    ]
    return TrialUse(
        devices=tuple(each),
        begins_s={1: 0.0, 2: 120.0},
        length_s=240.0,
        width_s=1,
        is_shared=False,
    )


def test_a_wide_trial_is_held_by_attempts_of_all_its_devices() -> None:
    again = lease(1, 1, 30, 40) | {"attempt_ids": 9, "attempt_numbers": 2, "ended_at_s": NAN}
    found = leases(lease(1, 0, 0, 10), lease(1, 1, 2, 12, share=0.5), lease(2, 0, 20, 30), again)
    first, second = held_by(found, 1)
    assert (first.number, first.device_ids, first.share) == (1, {0, 1}, 0.5)
    assert (first.start_s, first.end_s) == (0, 12)
    # What runs is held until now.
    assert (second.number, second.start_s, second.end_s) == (2, 30, 100)
    assert held_by(found, 3) == []


def test_each_device_has_a_line_in_each_panel_and_each_panel_a_unit() -> None:
    figure = trial_use_figure(a_use(device(0), device(1)), revision="s")
    assert [(each.name, each.yaxis) for each in figure.data] == [
        ("GPU 0", "y"),
        ("GPU 1", "y"),
        ("GPU 0", "y2"),
        ("GPU 1", "y2"),
    ]
    assert len({each.line.color for each in figure.data}) == 2
    assert list(figure.data[0].x) == [0, 1, 4]
    assert list(figure.data[2].y) == [1, 2, 3]
    assert figure.data[0].customdata[1] == "1970-01-01 00:17:40 UTC"
    layout = figure.layout
    titles = [layout.xaxis.title.text, layout.yaxis.title.text, layout.yaxis2.title.text]
    assert titles == ["Time in attempts (min)", "Utilization (%)", "Memory (GiB)"]
    assert [each.text for each in layout.annotations] == ["attempt 2"]
    assert [each.x0 for each in layout.shapes] == [2]


@pytest.mark.parametrize(
    ("told", "title"),
    [({"gib": [NAN] * 3}, "Utilization (%)"), ({"percent": [NAN] * 3}, "Memory (GiB)")],
)
def test_what_no_device_tells_has_no_panel(told: dict[str, list[float]], title: str) -> None:
    figure = trial_use_figure(a_use(device(0), **told), revision="s")
    assert [each.yaxis for each in figure.data] == ["y"]
    assert figure.layout.yaxis.title.text == title
    assert figure.layout.xaxis.anchor == "y"
    assert figure.layout.showlegend is False


def test_devices_of_two_hosts_say_where_they_are() -> None:
    figure = trial_use_figure(a_use(device(0), device(0, "b")), revision="s")
    assert [each.name for each in figure.data[:2]] == ["GPU 0 of a", "GPU 0 of b"]


def test_a_single_look_is_a_point() -> None:
    figure = trial_use_figure(a_use(device(0), percent=[5, NAN, NAN]), revision="s")
    assert [each.mode for each in figure.data] == ["markers", "lines"]
