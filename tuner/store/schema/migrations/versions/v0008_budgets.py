"""The budget of a start: flags and `tuner set` change the study file's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("tuner_dispatchers", sa.Column("budget", sa.JSON, nullable=True))
