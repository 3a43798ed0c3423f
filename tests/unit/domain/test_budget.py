"""What a study may spend, and when it has."""

from __future__ import annotations

import pytest

from tuner.domain.budget import Budget, Spent


def spent(trials: int = 0, time_s: float = 0.0, device_s: float = 0.0) -> Spent:
    return Spent(trials=trials, time_s=time_s, device_s=device_s)


@pytest.mark.parametrize(
    ("budget", "so_far", "reason"),
    [
        (Budget(), spent(10**6, 1e9, 1e9), None),
        (Budget(trials=3), spent(2, 1e9, 1e9), None),
        (Budget(trials=3), spent(3), "3 trials"),
        (Budget(trials=3), spent(4), "3 trials"),
        (Budget(time_s=60), spent(time_s=59.9), None),
        (Budget(time_s=60), spent(time_s=60.0), "60 s"),
        (Budget(device_hours=0.5), spent(device_s=1799.9), None),
        (Budget(device_hours=0.5), spent(device_s=1800.0), "0.5 device-hours"),
        (Budget(energy_kwh=2.0), Spent(trials=1, time_s=0, device_s=0, energy_kwh=1.9), None),
        (Budget(energy_kwh=2.0), Spent(trials=1, time_s=0, device_s=0, energy_kwh=2.0), "2 kWh"),
        (Budget(trials=9, time_s=60), spent(trials=1, time_s=61.0), "60 s"),
    ],
)
def test_reached_names_the_first_limit_that_is_spent(budget, so_far, reason):
    assert budget.reached(so_far) == reason


@pytest.mark.parametrize(
    ("budget", "so_far", "fraction"),
    [
        (Budget(), spent(5), None),
        (Budget(trials=4), spent(1), 0.25),
        (Budget(time_s=10), spent(time_s=5.0), 0.5),
        (Budget(device_hours=1), spent(device_s=900.0), 0.25),
        (Budget(trials=4, time_s=10), spent(trials=1, time_s=9.0), 0.9),
        (Budget(trials=4), spent(9), 1.0),
    ],
)
def test_fraction_is_of_the_limit_that_ends_the_study_first(budget, so_far, fraction):
    assert budget.fraction(so_far) == fraction
