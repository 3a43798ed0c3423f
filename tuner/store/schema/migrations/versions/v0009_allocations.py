"""Allocations: nodes from an engine, and the dispatcher that runs in each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"

_STATES = ("pending", "running", "ending", "ended", "failed")
_INSTANT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT, "mysql")


def upgrade() -> None:
    op.create_table(
        "tuner_allocations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("studies.study_id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("engine", sa.String(32), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                *_STATES,
                native_enum=False,
                create_constraint=True,
                length=32,
                name="ck_allocationstate",
            ),
            nullable=False,
        ),
        sa.Column("reason", _TEXT, nullable=False),
        sa.Column("node", sa.String(255)),
        sa.Column("n_devices", sa.Integer, nullable=False),
        sa.Column("submitted_by", sa.String(255), nullable=False),
        sa.Column("submitted_at", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT),
        sa.Column("deadline", _INSTANT),
        sa.Column("ended_at", _INSTANT),
        sa.UniqueConstraint("study_id", "number"),
    )
    if op.get_bind().dialect.name == "sqlite":
        # Alembic would copy the whole table for a foreign key, which SQLite takes here.
        op.execute(
            "ALTER TABLE tuner_dispatchers ADD COLUMN allocation_id INTEGER "
            "REFERENCES tuner_allocations (id)"
        )
    else:
        key = sa.ForeignKey("tuner_allocations.id")
        op.add_column("tuner_dispatchers", sa.Column("allocation_id", sa.Integer, key))
