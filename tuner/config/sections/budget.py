"""`budget`: limits of a study."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from tuner.config.model import Model
from tuner.config.notation.fields import ENERGY, Duration, PositiveNumber, WholeNumber
from tuner.domain.budget import Budget
from tuner.search_spaces.space import is_number

_ENERGY = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M)?Wh")
_KWH = {None: 1e-3, "k": 1.0, "M": 1e3}


def parse_energy(value: object) -> float:
    """Parses an energy in kWh: `5kWh`, `800Wh`, `1.5 MWh`, or a plain number of kWh.

    Raises:
        ValueError: If it is invalid or not above 0; worded to follow the key.
    """
    found = value
    if isinstance(value, str) and (match := _ENERGY.fullmatch(value.strip())):
        found = float(match[1]) * _KWH[match[2]]
    if not is_number(found) or not math.isfinite(found) or found <= 0:
        raise ValueError(f"is {value!r}, but must be an energy above 0, such as 5kWh or 800Wh.")
    return float(found)


class BudgetConfig(Model):
    """Limits of a study; None for no limit."""

    trials: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None,
        description="Number of trials, those of earlier starts included.",
        examples=[64],
    )
    time_s: Duration | None = Field(
        default=None,
        alias="time",
        description=(
            "Time during which at least one dispatcher works on the study. It begins with the "
            "first trial of a start."
        ),
        examples=["30m"],
    )
    device_hours: PositiveNumber | None = Field(
        default=None,
        description="Sum over all devices of the hours that they are in use by the study.",
        examples=[12],
    )
    energy_kwh: Annotated[float, PlainValidator(parse_energy), WithJsonSchema(ENERGY)] | None = (
        Field(
            default=None,
            alias="energy",
            description="Energy that the GPUs draw: Wh, kWh or MWh. A plain number is in kWh. "
            "Requires GPUs that report their power draw.",
            examples=["5kWh"],
        )
    )

    @property
    def is_open(self) -> bool:
        """Whether only the user ends the study."""
        limits = (self.trials, self.time_s, self.device_hours, self.energy_kwh)
        return all(each is None for each in limits)

    @property
    def limits(self) -> Budget:
        """The limits for the dispatcher."""
        return Budget(
            trials=self.trials,
            time_s=self.time_s,
            device_hours=self.device_hours,
            energy_kwh=self.energy_kwh,
        )
