"""One more cause of idle devices: the share of another user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0010"
down_revision = "0009"

_BEFORE = (
    "cause IN ('no_suggestion', 'starting', 'waiting_for_memory', 'gathering', 'taken', "
    "'paused', 'quarantined', 'nothing_left', 'database', 'disk_full', 'lost')"
)
_AFTER = _BEFORE.replace("'taken', ", "'taken', 'shared', ")


def upgrade() -> None:
    copied = _idle() if op.get_bind().dialect.name == "sqlite" else None
    with op.batch_alter_table("tuner_idle", copy_from=copied) as batch:
        batch.drop_constraint("ck_idlecause", type_="check")
        batch.create_check_constraint("ck_idlecause", sa.text(_AFTER))


def _idle() -> sa.Table:
    """The table as 0007 has made it, which SQLite copies to change it."""
    instant = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
    return sa.Table(
        "tuner_idle",
        sa.MetaData(),
        _part_of_key("dispatcher_id", "tuner_dispatchers.id", "CASCADE"),
        _part_of_key("device_id", "tuner_devices.id", None),
        sa.Column("began_at", instant, primary_key=True),
        sa.Column("ended_at", instant, nullable=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.CheckConstraint(_BEFORE, name="ck_idlecause"),
        sqlite_with_rowid=False,
    )


def _part_of_key(name: str, target: str, ondelete: str | None) -> sa.Column[int]:
    key = sa.ForeignKey(target, ondelete=ondelete)
    return sa.Column(name, sa.Integer, key, primary_key=True, autoincrement=False)
