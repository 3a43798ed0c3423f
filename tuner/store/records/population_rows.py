"""What is noted of a population with its trials, and the looks that keep its number exact.

All of it stands in Optuna's table of a trial's system attributes. A member that was ended early, or
failed for good, carries what is to replace it, written in one transaction with its end; what
replaces it carries where it comes from, written in one transaction with its row. So a crash at any
instant leaves a member that is to be judged again, or one that somebody will replace, or what did.
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
"""Attribute of a trial that was drawn for the population and is nobody's copy."""
COPY_KEY = "tuner:copy"
"""Attribute of a trial that took another's place, mostly as a copy: its `Origin`."""
FIXED_KEY = "fixed_params"
"""Attribute of a trial that Optuna suggests nothing else to."""
REPLACED_KEY = "tuner:replaced"
"""Attribute of a member that was ended early, or failed for good: its `Replacement`."""

POPULATION_IS_OVER = "the population has come to its end"
"""Why a study has ended whose members have all come to their last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a trial comes from that took another's place."""

    #: Number of the trial that it is a copy of; None where it has a new configuration.
    parent: int | None
    #: Of the checkpoint that it begins from; 0 where it was lost and the copy began again.
    step: int
    #: Number of the trial whose place it took.
    replaces: int
    #: False where its program restarted its step count: what it continued from is unknown.
    is_sure: bool = True

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Origin | None:
        """From the attributes of a trial; None where it took nobody's place."""
        found = attributes.get(COPY_KEY)
        return None if found is None else cls(**found)

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What is to take the place of a member that was ended early, or failed for good."""

    #: None for a new configuration.
    parent: int | None
    step: int
    #: Those that are searched; of a new configuration what is left out is drawn by the sampler.
    params: Mapping[str, Json]
    #: Where the copied checkpoint lies.
    host: str
    #: How many have failed for good in this place, one after the other, up to this one.
    n_failed: int = 0
    #: For users, where no attempt of the member tells it.
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
