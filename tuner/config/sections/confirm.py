"""`confirm`: how the leaders of a study are run again at its end."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from tuner.config.model import Model
from tuner.config.notation.fields import WholeNumber

#: Suffix of the confirmation study's name.
_SUFFIX = ".confirm"
_WINNER_RUN = re.compile(r"(.+)\.best-\d+", re.DOTALL)


class ConfirmConfig(Model):
    """Number of leaders and of confirmation runs."""

    top: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=3, description="Number of configurations, from the best on.", examples=[5]
    )
    seeds: Annotated[WholeNumber, Field(ge=2)] = Field(
        default=5,
        description="Runs of each configuration, each with its own seed. At least 2, so that the "
        "spread is known.",
        examples=[10],
    )


def confirmation_of(study: str) -> str:
    """Name of the study that holds the runs of another one's leaders."""
    return study + _SUFFIX


def is_confirmation(study: str) -> bool:
    """Whether a study's name is that of another one's confirmation runs."""
    return study.endswith(_SUFFIX)


def winner_run_of(study: str, trial_number: int) -> str:
    """Name of the study that trains the winner of another one (`tuner run --best`)."""
    return f"{study}.best-{trial_number}"


def only_study(names: set[str]) -> str | None:
    """The study if none is named: the only one, apart from confirmation and winner runs."""
    runs = {name for name in names if (run := _WINNER_RUN.fullmatch(name)) and run[1] in names}
    own = {name for name in names - runs if not is_confirmation(name)}
    return own.pop() if len(own) == 1 else None
