"""Versions of the libraries that a trial was trained with, unknown of earlier records; views have them."""

from __future__ import annotations

from importlib import import_module

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column to trials, with an index by which the versions of all are compared, and to the end of the views."""
    views = import_module("db.schema.migrations.versions.0004_views")
    for view in views.VIEWS:
        op.execute(f"DROP VIEW {view}")
    op.add_column("trials", sa.Column("libraries", sa.Text()))
    known = sa.text("libraries IS NOT NULL")
    op.create_index("ix_trials_libraries", "trials", ["libraries", "config_id"], sqlite_where=known)
    views.create_views(", configs.fingerprint, trials.libraries")
