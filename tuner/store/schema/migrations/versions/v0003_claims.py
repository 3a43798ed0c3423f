"""Which dispatcher has which trial, for several dispatchers on one study."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tuner_claims",
        sa.Column(
            "trial_id",
            sa.Integer,
            sa.ForeignKey("trials.trial_id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column(
            "dispatcher_id",
            sa.Integer,
            sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
    )
