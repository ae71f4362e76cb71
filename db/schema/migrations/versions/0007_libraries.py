"""Versions of the libraries that a trial was trained with; those of earlier records are unknown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column to trials, with an index by which the versions of all of them are compared."""
    op.add_column("trials", sa.Column("libraries", sa.Text()))
    known = sa.text("libraries IS NOT NULL")
    op.create_index("ix_trials_libraries", "trials", ["libraries", "config_id"], sqlite_where=known)
