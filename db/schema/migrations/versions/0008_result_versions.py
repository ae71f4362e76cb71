"""Result versions of a configuration's items, none of which is above 1 in earlier records; views have them."""

from __future__ import annotations

from importlib import import_module

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add a column to configurations, and to the end of the views."""
    views = import_module("db.schema.migrations.versions.0004_views")
    for view in views.VIEWS:
        op.execute(f"DROP VIEW {view}")
    op.add_column("configs", sa.Column("result_versions", sa.Text()))
    views.create_views(", configs.fingerprint, trials.libraries, configs.result_versions")
