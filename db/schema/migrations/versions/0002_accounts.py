"""The cost of attempts, and the users who submitted them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns, NULL in existing rows."""
    op.add_column("submissions", sa.Column("username", sa.Text()))
    op.add_column("attempts", sa.Column("submission_id", sa.String(32)))
    op.add_column("attempts", sa.Column("waited_seconds", sa.Float(53)))
    op.add_column("attempts", sa.Column("cpus", sa.Integer()))
    op.add_column("attempts", sa.Column("gpus", sa.Integer()))
    op.add_column("attempts", sa.Column("pieces", sa.Integer()))
