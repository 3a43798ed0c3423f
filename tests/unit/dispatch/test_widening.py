"""When more devices are worth a restart, and how many there may be."""

from __future__ import annotations

import pytest

from tuner.devices.allocation.width import (
    ONE,
    Devices,
    FixedWidth,
    LearnedWidth,
    WidthByParameter,
    WidthRule,
    wider,
)
from tuner.dispatch.attempts.widening import Course

BY_PARAMETER = WidthByParameter(name="world_size")
WIDTHS = (ONE, Devices(n_devices=4), Devices(n_devices=6))


@pytest.mark.parametrize(
    ("rule", "n_devices", "expected"),
    [
        pytest.param(FixedWidth(width=ONE), 1, 2, id="twice"),
        pytest.param(FixedWidth(width=ONE), 4, 8, id="again"),
        pytest.param(BY_PARAMETER, 1, 4, id="what-the-parameter-can-be"),
        pytest.param(BY_PARAMETER, 4, 6, id="the-next"),
        pytest.param(BY_PARAMETER, 6, None, id="the-widest"),
        pytest.param(LearnedWidth(), 1, None, id="learned"),
    ],
)
def test_the_next_width_keeps_to_the_study_file(
    rule: WidthRule, n_devices: int, expected: int | None
) -> None:
    assert wider(rule, WIDTHS, n_devices) == expected


def test_the_restart_has_to_be_gained_twice() -> None:
    # Twice as fast on twice the devices: half of what is left is gained.
    assert Course(left_s=100.0, restart_s=25.0).pays(2.0, 1.0)
    assert not Course(left_s=100.0, restart_s=26.0).pays(2.0, 1.0)
    assert not Course(left_s=100.0, restart_s=1.0).pays(2.0, 0.0)
    assert not Course(left_s=0.0, restart_s=1.0).pays(8.0, 1.0)


def test_more_devices_gain_more_and_cost_the_restart() -> None:
    course = Course(left_s=100.0, restart_s=10.0)
    assert course.gain_s(4.0, 1.0) == pytest.approx(75.0)
    assert course.wide_s(4.0, 1.0) == pytest.approx(35.0)
    assert course.gain_s(4.0, 0.8) < course.gain_s(4.0, 1.0)
