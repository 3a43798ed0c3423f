"""Reliability of the rungs of a study, as last stored by its dispatchers."""

from __future__ import annotations

import json

import sqlalchemy as sa

from tuner.search.rungs.order.stored_trust import TRUST_KEY, StoredTrust, newest_trust
from tuner.search.rungs.order.watch import WITNESS_KEY
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS

#: The newest trials that have one; the newest note is on one of the newest.
_N_READ = 32


def read_rung_trust(connection: sa.Connection, study_id: int) -> StoredTrust | None:
    """None if the ranking at rungs is not checked, or no trial has completed."""
    query = (
        sa.select(SYSTEM_ATTRS.c.value_json)
        .join(TRIALS, TRIALS.c.trial_id == SYSTEM_ATTRS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key == TRUST_KEY)
        .order_by(TRIALS.c.trial_id.desc())
        .limit(_N_READ)
    )
    return newest_trust(json.loads(row) for row in connection.execute(query).scalars())


def read_witness_step(connection: sa.Connection, trial_id: int) -> int | None:
    """The step past which a weak trial was trained to check the order; None for most trials."""
    query = sa.select(SYSTEM_ATTRS.c.value_json).where(
        SYSTEM_ATTRS.c.trial_id == trial_id, SYSTEM_ATTRS.c.key == WITNESS_KEY
    )
    stored = connection.execute(query).scalar()
    return None if stored is None else int(stored)
