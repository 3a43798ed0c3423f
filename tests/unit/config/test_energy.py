"""Energies as people write them."""

from __future__ import annotations

import pytest

from tuner.config.sections.budget import parse_energy


@pytest.mark.parametrize(
    ("text", "kwh"),
    [("5kWh", 5.0), ("800 Wh", 0.8), ("1.5MWh", 1500.0), (3, 3.0), (0.25, 0.25)],
)
def test_energy_is_read_in_kwh(text: object, kwh: float) -> None:
    assert parse_energy(text) == pytest.approx(kwh)


@pytest.mark.parametrize("value", ["5 kW", "", "kWh", -1, 0, "0kWh", True, None, float("inf")])
def test_what_is_no_energy_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be an energy above 0"):
        parse_energy(value)
