"""`budget`: what a study may spend."""

from __future__ import annotations

import math
import re
from typing import Annotated, TypeAlias

from pydantic import Field, PlainValidator, Strict

from search_spaces.space import is_number
from tuner.budget import Budget
from tuner.config import rules
from tuner.config.duration import parse_duration
from tuner.config.model import Model

_ENERGY = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M)?Wh")
_KWH = {None: 1e-3, "k": 1.0, "M": 1e3}

_WholeNumber: TypeAlias = Annotated[int, Strict()]


def parse_energy(value: object) -> float:
    """Reads an energy in kWh: `5kWh`, `800Wh`, `1.5 MWh`, or a plain number of kWh.

    Raises:
        ValueError: If it is none, or not above 0; to be read after the key.
    """
    found = value
    if isinstance(value, str) and (match := _ENERGY.fullmatch(value.strip())):
        found = float(match[1]) * _KWH[match[2]]
    if not is_number(found) or not math.isfinite(found) or found <= 0:
        raise ValueError(f"is {value!r}, but must be an energy above 0, such as 5kWh or 800Wh.")
    return float(found)


class BudgetConfig(Model):
    """What the study may spend; what is None is not limited."""

    trials: Annotated[_WholeNumber, Field(ge=1)] | None = None
    time_s: Annotated[float, PlainValidator(parse_duration)] | None = Field(
        default=None, alias="time"
    )
    device_hours: Annotated[float, PlainValidator(rules.positive_number)] | None = None
    energy_kwh: Annotated[float, PlainValidator(parse_energy)] | None = Field(
        default=None, alias="energy"
    )

    @property
    def is_open(self) -> bool:
        """Whether only the user ends the study."""
        limits = (self.trials, self.time_s, self.device_hours, self.energy_kwh)
        return all(each is None for each in limits)

    @property
    def limits(self) -> Budget:
        """The same, for those who keep to it."""
        return Budget(
            trials=self.trials,
            time_s=self.time_s,
            device_hours=self.device_hours,
            energy_kwh=self.energy_kwh,
        )
