"""Commands to a running study, and the causes of stalled, commanded and unlucky attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tuner.store.schema.migrations.versions.v0001_first_tables import attempts

revision = "0005"
down_revision = "0004"

_CAUSES = (
    "cause IN ('exception', 'not_a_number', 'no_result', 'device_memory', 'host_memory', "
    "'timeout', 'stalled', 'exit_code', 'signal', 'launch', 'pruner', 'program', 'ranks', "
    "'port_taken', 'device_fault', 'commanded', 'interrupted', 'dispatcher_gone')"
)


def upgrade() -> None:
    _change_causes()
    op.create_table(
        "tuner_commands",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("studies.study_id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("trial_number", sa.Integer),
        sa.Column("arguments", sa.JSON, nullable=False),
        sa.Column("asked_by", sa.String(255), nullable=False),
        sa.Column(
            "asked_at", sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql"), nullable=False
        ),
    )


def _change_causes() -> None:
    memory = sa.Column("peak_memory_bytes", sa.BigInteger)
    before = sa.Table("tuner_attempts", sa.MetaData(), *attempts(), memory)
    with op.batch_alter_table("tuner_attempts", copy_from=before) as batch:
        batch.drop_constraint("ck_cause", type_="check")
        batch.create_check_constraint("ck_cause", sa.text(_CAUSES))
