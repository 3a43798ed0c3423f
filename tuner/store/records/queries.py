"""Reads a study in the database. Never writes, not even missing tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.config.sections.confirm import only_study
from tuner.domain.attempt import Outcome
from tuner.errors import StoreError
from tuner.store.connection.database import Database
from tuner.store.optuna_compat import study_id_of
from tuner.store.records.attempt_history import begun_at
from tuner.store.schema.models import AttemptRow, DispatcherRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a completed trial's result."""

    seed: int
    attempt_number: int
    git_commit: str | None
    git_is_dirty: bool | None
    log_path: str
    #: When the first attempt of the trial got its devices, in UTC without a zone.
    begun_at: datetime | None


def find_study(database: Database, name: str | None) -> tuple[int, str]:
    """A study by name, or the only one in the database.

    Raises:
        StoreError: If there is none with this name, or several and no name was given.
    """
    studies = {s.study_name: study_id_of(s) for s in database.storage.get_all_studies()}
    listed = ", ".join(sorted(studies)) or "no study"
    name = name or only_study(set(studies))
    if name is None:
        raise StoreError(f"{database.shown_url} holds {listed}. Name one of them.")
    if name not in studies:
        raise StoreError(f"{database.shown_url} has no study {name!r}. It holds {listed}.")
    return studies[name], name


def origin_of(database: Database, trial_id: int) -> Origin | None:
    """The attempt that completed a trial; None if the tuner did not run it."""
    if not sa.inspect(database.engine).has_table(AttemptRow.__tablename__):
        return None
    query = (
        sa.select(
            AttemptRow.seed,
            AttemptRow.number,
            AttemptRow.log_path,
            DispatcherRow.git_commit,
            DispatcherRow.git_is_dirty,
        )
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(AttemptRow.trial_id == trial_id, AttemptRow.outcome == Outcome.COMPLETED)
    )
    with database.engine.connect() as connection:
        row = connection.execute(query).first()
        first_leased_at = begun_at(connection, trial_id)
    if row is None:
        return None
    return Origin(
        seed=row.seed,
        attempt_number=row.number,
        git_commit=row.git_commit,
        git_is_dirty=row.git_is_dirty,
        log_path=row.log_path,
        begun_at=first_leased_at,
    )


def first_seed(database: Database, study_id: int) -> int | None:
    """The seed of the study's first start; None for a new study."""
    query = (
        sa.select(DispatcherRow.seed)
        .where(DispatcherRow.study_id == study_id)
        .order_by(DispatcherRow.id)
    )
    with database.engine.connect() as connection:
        return connection.execute(query).scalar()
