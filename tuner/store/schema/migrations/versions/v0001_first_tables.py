"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "tuner_hosts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("n_cores", sa.Integer, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "tuner_devices",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("host_id", sa.Integer, sa.ForeignKey("tuner_hosts.id"), nullable=False),
        sa.Column("device", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger),
        sa.UniqueConstraint("host_id", "device"),
        sa.CheckConstraint("kind IN ('gpu', 'mig', 'cpu')", name="ck_devicekind"),
    )
    op.create_table("tuner_dispatchers", *_dispatchers())
    op.create_table("tuner_attempts", *attempts())
    op.create_table(
        "tuner_leases",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_attempt(nullable=False),
        sa.Column("device_id", sa.Integer, sa.ForeignKey("tuner_devices.id"), nullable=False),
        sa.Column("held_device_id", sa.Integer),
        sa.Column("leased_at", sa.DateTime, nullable=False),
        sa.Column("released_at", sa.DateTime),
        sa.UniqueConstraint("held_device_id"),
    )
    op.create_table(
        "tuner_events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        _of_dispatcher(index=True),
        _of_attempt(nullable=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "tuner_metrics",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_attempt(nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("value", sa.Float(precision=53)),
    )


def _dispatchers() -> list[SchemaItem]:
    return [
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("studies.study_id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("host_id", sa.Integer, sa.ForeignKey("tuner_hosts.id"), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_created_at_s", sa.Double, nullable=False),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("beat_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("study_file", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("git_commit", sa.String(64)),
        sa.Column("git_is_dirty", sa.Boolean),
    ]


def attempts() -> list[SchemaItem]:
    return [
        sa.Column("id", sa.Integer, primary_key=True),
        _of_dispatcher(index=False),
        sa.Column(
            "trial_id",
            sa.Integer,
            sa.ForeignKey("trials.trial_id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("outcome", sa.String(32)),
        sa.Column("cause", sa.String(32)),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("pid", sa.Integer),
        sa.Column("log_path", sa.Text, nullable=False),
        sa.Column("leased_at", sa.DateTime, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
        # By name: Alembic's copy of a table on SQLite leaves out those that a column asks for.
        sa.Index("ix_tuner_attempts_dispatcher_id", "dispatcher_id"),
        sa.Index("ix_tuner_attempts_state", "state"),
        sa.UniqueConstraint("trial_id", "number"),
        sa.CheckConstraint(
            "state IN ('leased', 'running', 'stopping', 'clearing', 'finished')",
            name="ck_attemptstate",
        ),
        sa.CheckConstraint(
            "outcome IN ('completed', 'pruned', 'paused', 'failed', 'out_of_memory', 'timed_out', "
            "'failed_to_start', 'lost', 'cancelled')",
            name="ck_outcome",
        ),
        sa.CheckConstraint(
            "cause IN ('exception', 'not_a_number', 'no_result', 'device_memory', 'host_memory', "
            "'timeout', 'exit_code', 'signal', 'launch', 'pruner', 'program', 'interrupted', "
            "'dispatcher_gone')",
            name="ck_cause",
        ),
    ]


def _of_dispatcher(*, index: bool) -> sa.Column[int]:
    target = sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE")
    return sa.Column("dispatcher_id", sa.Integer, target, nullable=False, index=index)


def _of_attempt(*, nullable: bool) -> sa.Column[int]:
    target = sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE")
    return sa.Column("attempt_id", sa.Integer, target, nullable=nullable, index=True)
