"""Attributes of a population's trials, and checks that keep its size exact.

All are system attributes in Optuna's tables. A member that was ended early, or has failed, holds
its replacement, written in one transaction with its end; the replacement holds its origin, written
in one transaction with its row. After a crash at any point there is thus either a member to judge
again, or one with a pending replacement, or the replacement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from tuner.domain.messages import Json
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS

MEMBER_KEY = "tuner:member"
"""Attribute of a trial that was drawn for the population and is not a copy."""
COPY_KEY = "tuner:copy"
"""Attribute of a trial that replaced another, usually as a copy: its `Origin`."""
FIXED_KEY = "fixed_params"
"""Attribute with fixed parameters, which Optuna does not suggest."""
REPLACED_KEY = "tuner:replaced"
"""Attribute of a member that was ended early, or failed for good: its `Replacement`."""

POPULATION_IS_OVER = "the population has come to its end"
"""Why a study ended: all members have reached their last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a trial that replaced another."""

    #: Number of the copied trial; None for a new configuration.
    parent: int | None
    #: Step of its checkpoint; 0 if that was lost and the copy started from the beginning.
    step: int
    #: Number of the trial that it replaced.
    replaces: int
    #: False if its program restarted its step count: its real starting point is unknown.
    is_sure: bool = True

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Origin | None:
        """The origin in a trial's attributes; None if it replaced no trial."""
        found = attributes.get(COPY_KEY)
        return None if found is None else cls(**found)

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The replacement of a member that was ended early or has failed."""

    #: None for a new configuration.
    parent: int | None
    step: int
    #: Searched parameters; the sampler draws missing ones of a new configuration.
    params: Mapping[str, Json]
    #: Host of the copied checkpoint.
    host: str
    #: Consecutive failures in this place, up to this one.
    n_failed: int = 0
    #: Text for the user, if no attempt of the member contains it.
    why: str = ""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Replacement | None:
        found = attributes.get(REPLACED_KEY)
        return None if found is None else cls(**found)

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def count_members(connection: sa.Connection, study_id: int) -> int:
    """Trials of a study that were drawn for its population."""
    query = (
        sa.select(sa.func.count())
        .select_from(SYSTEM_ATTRS.join(TRIALS, TRIALS.c.trial_id == SYSTEM_ATTRS.c.trial_id))
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key == MEMBER_KEY)
    )
    return int(connection.execute(query).scalar_one())


def is_replaced(connection: sa.Connection, study_id: int, number: int) -> bool:
    """Whether something has taken a member's place already."""
    query = (
        sa.select(SYSTEM_ATTRS.c.value_json)
        .join(TRIALS, TRIALS.c.trial_id == SYSTEM_ATTRS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key == COPY_KEY)
    )
    found = connection.execute(query).scalars()
    return any(json.loads(text)["replaces"] == number for text in found)
