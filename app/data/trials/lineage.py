"""Lineage of a population: the parent of each copy, and its changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tuner.app.data.convergence.rungs import read_pruner
from tuner.queries.schedules import read_origins
from tuner.queries.trials.params import read_whole_params
from tuner.search.population.pbt import PbtPruner
from tuner.search.population.replacement import changes_text
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.population_rows import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A trial that replaced another, usually as a copy."""

    number: int
    origin: Origin
    #: Parameters that differ from the parent's, as text; all of a new configuration.
    changes: str

    @property
    def parent(self) -> int | None:
        """Number of the trial whose training it continues; None if it starts from the beginning."""
        return self.origin.parent if self.origin.step and self.origin.is_sure else None


#: By the trial's number.
Lineage = Mapping[int, Taken]


def read_lineage(connection: sa.Connection, study_id: int) -> Lineage | None:
    """None if the study, as last run, has no population."""
    if not isinstance(read_pruner(connection, study_id), PbtPruner):
        return None
    origins = read_origins(connection, study_id)
    query = sa.select(TRIALS.c.number, TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    ids = {row.number: row.trial_id for row in connection.execute(query)}
    params = read_whole_params(connection, study_id)

    def changes(number: int, origin: Origin) -> str:
        before = {} if origin.parent is None else params.get(ids[origin.parent], {})
        return changes_text(before, params.get(ids[number], {}))

    return {
        number: Taken(number=number, origin=origin, changes=changes(number, origin))
        for number, origin in sorted(origins.items())
    }


def descent(lineage: Lineage, number: int) -> Iterator[tuple[int, int]]:
    """From a trial up to its first ancestor.

    Yields:
        A trial's number, and the step after which it trained; 0 for the last one.
    """
    while (taken := lineage.get(number)) is not None and taken.parent is not None:
        yield number, taken.origin.step
        number = taken.parent
    yield number, 0
