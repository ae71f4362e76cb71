"""Fingerprints of version 0.1 are marked as partial, except of data that they cover completely; views have them."""

from __future__ import annotations

import json
from importlib import import_module

import sqlalchemy as sa
from alembic import op

from harness.trials.trial import COMPLETE, PARTIAL

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Store `partial` in every configuration, and create the views again with one more column at the end."""
    views = import_module("db.schema.migrations.versions.0004_views")
    for view in views.VIEWS:
        op.execute(f"DROP VIEW {view}")
    connection = op.get_bind()
    for id, data, text in connection.execute(sa.text("SELECT id, data, CAST(config AS TEXT) FROM configs")).all():
        config = json.loads(text)
        if "partial" in config["data"]:
            continue
        config["data"]["partial"] = data not in COMPLETE
        mark = PARTIAL if data not in COMPLETE else ""
        statement = "UPDATE configs SET fingerprint = fingerprint || :mark, config = :config WHERE id = :id"
        connection.execute(sa.text(statement), {"mark": mark, "config": json.dumps(config), "id": id})
    views.create_views(", configs.fingerprint")
