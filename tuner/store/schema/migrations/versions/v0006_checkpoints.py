"""Checkpoints that were seen on disk, and the devices that a dispatcher has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("tuner_dispatchers", sa.Column("devices", sa.JSON))
    op.create_table(
        "tuner_checkpoints",
        sa.Column("id", sa.Integer, primary_key=True),
        _owner("trial_id", "trials.trial_id"),
        _owner("attempt_id", "tuner_attempts.id"),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql"), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column(
            "saved_at", sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql"), nullable=False
        ),
    )


def _owner(name: str, target: str) -> sa.Column[int]:
    key = sa.ForeignKey(target, ondelete="CASCADE")
    return sa.Column(name, sa.Integer, key, nullable=False, index=True)
