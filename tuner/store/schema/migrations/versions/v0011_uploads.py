"""Checkpoints and logs in an object store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    instant = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
    kind = sa.Enum(
        "checkpoint",
        "handed_on",
        "log",
        native_enum=False,
        create_constraint=True,
        length=32,
        name="ck_uploadkind",
    )
    op.create_table(
        "tuner_uploads",
        sa.Column("id", sa.Integer, primary_key=True),
        _owner("trial_id", "trials.trial_id"),
        _owner("attempt_id", "tuner_attempts.id"),
        sa.Column("kind", kind, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("uri", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql"), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("saved_at", instant, nullable=False),
        sa.Column("removed_at", instant, nullable=True),
    )


def _owner(name: str, target: str) -> sa.Column[int]:
    key = sa.ForeignKey(target, ondelete="CASCADE")
    return sa.Column(name, sa.Integer, key, nullable=False, index=True)
