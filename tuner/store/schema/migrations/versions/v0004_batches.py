"""Number of a dispatcher's last batch, to detect its commit after a cut connection; end reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    reason = sa.Column("end_reason", sa.String(255), nullable=False, server_default=sa.text("''"))
    op.add_column("tuner_dispatchers", reason)
    number = sa.Column("n_batches", sa.Integer, nullable=False, server_default=sa.text("0"))
    op.add_column("tuner_dispatchers", number)
