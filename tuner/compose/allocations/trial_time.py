"""Checks whether a study's trials fit into an allocation, from its records."""

from __future__ import annotations

import math

import sqlalchemy as sa

from tuner.engines.port import AllocationOrder
from tuner.errors import ConfigError
from tuner.queries.dispatchers import has_our_tables
from tuner.store.connection.database import Database
from tuner.store.optuna_tables.statements import ids_of
from tuner.store.records.durations import ended_uses
from tuner.store.schema.models import CheckpointRow


def check_trial_time(file: str, order: AllocationOrder, database: Database, study_id: int) -> None:
    """Refuses a time limit that is too short for any progress of the study's trials.

    Args:
        file: The study file, for the message.
        order: The order of allocations.
        database: The study's database.
        study_id: Its id.

    Raises:
        ConfigError: If each completed trial took longer, and none has saved a checkpoint.
    """
    if order.time_s is None:
        return
    with database.engine.connect() as connection:
        if not has_our_tables(connection) or _has_checkpoints(connection, study_id):
            return
        lasted_s = [each.time_s for each in ended_uses(connection, study_id).completed]
    usable_s = order.time_s - order.notice_s
    if not lasted_s or min(lasted_s) <= usable_s:
        return
    needed = math.ceil((max(lasted_s) + order.notice_s) / 60)
    raise ConfigError(
        f"is {order.time_s:g} s, of which trials have {usable_s:g} s, but the shortest completed "
        f"trial of the study took {min(lasted_s):.0f} s, and none has saved a checkpoint. Give it "
        f"at least {needed}m, or save checkpoints (trial.save_checkpoint).",
        file=file,
        key="engine.time",
    )


def _has_checkpoints(connection: sa.Connection, study_id: int) -> bool:
    query = sa.select(CheckpointRow.id).where(CheckpointRow.trial_id.in_(ids_of(study_id))).limit(1)
    return connection.execute(query).first() is not None
