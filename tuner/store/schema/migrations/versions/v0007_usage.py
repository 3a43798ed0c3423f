"""Device samples, by second and rolled up; usage of attempts; idle times of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"

_CAUSES = (
    "no_suggestion",
    "starting",
    "waiting_for_memory",
    "gathering",
    "taken",
    "paused",
    "quarantined",
    "nothing_left",
    "database",
    "disk_full",
    "lost",
)


def upgrade() -> None:
    _make_usage()
    _make_attempt_usage()
    _make_idle()


def _part_of_key(name: str, target: str, ondelete: str | None = "CASCADE") -> sa.Column[int]:
    key = sa.ForeignKey(target, ondelete=ondelete)
    return sa.Column(name, sa.Integer, key, primary_key=True, autoincrement=False)


def _device() -> sa.Column[int]:
    return _part_of_key("device_id", "tuner_devices.id", ondelete=None)


def _figures(narrow: str, wide: str) -> list[sa.Column[int]]:
    return [
        *(sa.Column(name, sa.Integer) for name in narrow.split()),
        *(sa.Column(name, sa.BigInteger) for name in wide.split()),
    ]


def _make_usage() -> None:
    op.create_table(
        "tuner_usage",
        _part_of_key("dispatcher_id", "tuner_dispatchers.id"),
        sa.Column("span_s", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start_s", sa.BigInteger, primary_key=True, autoincrement=False),
        _device(),
        sa.Column("covered_ms", sa.Integer, nullable=False),
        *_figures(
            "utilization_max_pct memory_max_mib power_max_mw temperature_max_c",
            "utilization_pct_ms memory_mib_ms energy_mj temperature_c_ms sm_clock_mhz_ms "
            "memory_clock_mhz_ms pcie_rx_kib pcie_tx_kib nvlink_rx_kib nvlink_tx_kib",
        ),
        sqlite_with_rowid=False,
    )


def _make_attempt_usage() -> None:
    op.create_table(
        "tuner_attempt_usage",
        _part_of_key("attempt_id", "tuner_attempts.id"),
        _device(),
        sa.Column("covered_ms", sa.BigInteger, nullable=False),
        *_figures(
            "utilization_max_pct memory_max_mib", "utilization_pct_ms memory_mib_ms energy_mj"
        ),
        sqlite_with_rowid=False,
    )


def _make_idle() -> None:
    instant = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
    op.create_table(
        "tuner_idle",
        _part_of_key("dispatcher_id", "tuner_dispatchers.id"),
        _device(),
        sa.Column("began_at", instant, primary_key=True),
        sa.Column("ended_at", instant, nullable=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.CheckConstraint(
            f"cause IN ({', '.join(repr(cause) for cause in _CAUSES)})", name="ck_idlecause"
        ),
        sqlite_with_rowid=False,
    )
