"""What a start may spend: flags and `tuner set` change what its study file says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("tuner_dispatchers", sa.Column("budget", sa.JSON, nullable=True))
