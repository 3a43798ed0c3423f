"""When the next trial is asked for early."""

from __future__ import annotations

import pytest

from tuner.dispatch.supply.prefetch import Foresight


def test_nothing_is_known_at_first() -> None:
    foresight = Foresight()
    assert not foresight.is_worth_it(8)
    foresight.asked(10.0)
    assert not foresight.is_worth_it(8), "no trial has ended"
    foresight.ended(1.0)
    assert foresight.is_worth_it(8)


@pytest.mark.parametrize(
    ("ask_s", "trial_s", "n_devices", "is_worth_it"),
    [
        (0.005, 3600.0, 8, False),
        (0.005, 0.2, 8, True),
        (2.0, 60.0, 8, True),
        # One device that waits for 2 s of a minute: better so than to know nothing of the last.
        (0.5, 60.0, 1, False),
        (20.0, 60.0, 1, True),
    ],
)
def test_what_devices_wait_is_compared_with_what_asking_early_costs(
    ask_s: float, trial_s: float, n_devices: int, is_worth_it: bool
) -> None:
    foresight = Foresight()
    for _ in range(3):
        foresight.asked(ask_s)
        foresight.ended(trial_s)
    assert foresight.is_worth_it(n_devices) is is_worth_it


def test_newer_times_count_more() -> None:
    foresight = Foresight()
    foresight.ended(10.0)
    foresight.asked(0.0)
    for _ in range(20):
        foresight.asked(5.0)
    assert foresight.is_worth_it(2)
