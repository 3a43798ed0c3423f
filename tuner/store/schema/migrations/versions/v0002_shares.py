"""Several attempts on one GPU, the memory of an attempt, causes of trials with many ranks.

On MySQL also instants to the microsecond and long texts, as the other databases have them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tuner.store.schema.migrations.versions.v0001_first_tables import attempts

revision = "0002"
down_revision = "0001"

_CAUSES = (
    "cause IN ('exception', 'not_a_number', 'no_result', 'device_memory', 'host_memory', "
    "'timeout', 'exit_code', 'signal', 'launch', 'pruner', 'program', 'ranks', 'port_taken', "
    "'interrupted', 'dispatcher_gone')"
)
#: SQLite has no name for a constraint that was made without one.
_NAMES = {"uq": "uq_%(table_name)s_%(column_0_name)s"}
_INSTANTS = {
    "tuner_dispatchers": {"started_at": False, "beat_at": False, "ended_at": True},
    "tuner_attempts": {
        "leased_at": False,
        "started_at": True,
        "ended_at": True,
        "finished_at": True,
    },
    "tuner_leases": {"leased_at": False, "released_at": True},
    "tuner_events": {"at": False},
}
_TEXTS = {
    "tuner_dispatchers": ("study_file", "folder"),
    "tuner_attempts": ("detail", "log_path"),
    "tuner_events": ("detail",),
}


def upgrade() -> None:
    _change_attempts()
    _change_leases()
    if op.get_bind().dialect.name == "mysql":
        _widen_on_mysql()


def _change_attempts() -> None:
    before = sa.Table("tuner_attempts", sa.MetaData(), *attempts())
    with op.batch_alter_table("tuner_attempts", copy_from=before) as batch:
        batch.add_column(sa.Column("peak_memory_bytes", sa.BigInteger))
        batch.drop_constraint("ck_cause", type_="check")
        batch.create_check_constraint("ck_cause", sa.text(_CAUSES))


def _change_leases() -> None:
    unique = _unique_of_held_device()
    with op.batch_alter_table("tuner_leases", naming_convention=_NAMES) as batch:
        batch.add_column(
            sa.Column("held_slot", sa.Integer, nullable=False, server_default=sa.text("0"))
        )
        batch.add_column(sa.Column("share", sa.Double, nullable=False, server_default=sa.text("1")))
        batch.drop_constraint(unique, type_="unique")
        batch.create_unique_constraint("uq_tuner_leases_held", ["held_device_id", "held_slot"])


def _unique_of_held_device() -> str:
    for unique in sa.inspect(op.get_bind()).get_unique_constraints("tuner_leases"):
        if unique["column_names"] == ["held_device_id"] and unique["name"]:
            return unique["name"]
    return "uq_tuner_leases_held_device_id"


def _widen_on_mysql() -> None:
    for table, instants in _INSTANTS.items():
        for name, nullable in instants.items():
            op.alter_column(table, name, type_=mysql.DATETIME(fsp=6), existing_nullable=nullable)
    for table, names in _TEXTS.items():
        for name in names:
            op.alter_column(table, name, type_=mysql.MEDIUMTEXT(), existing_nullable=False)
    op.alter_column(
        "tuner_dispatchers", "process_created_at_s", type_=sa.Double, existing_nullable=False
    )
