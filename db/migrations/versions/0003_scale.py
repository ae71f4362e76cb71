"""A million trials: theirs in the order of ids, and the states of a configuration in an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change indexes of trials; on SQLite, make the table anew without row numbers."""
    op.drop_index("ix_trials_config_id", "trials")
    op.drop_index("ix_trials_submission_id", "trials")
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table("trials", recreate="always", table_kwargs={"sqlite_with_rowid": False}):
            pass
    op.create_index("ix_trials_config_id_state", "trials", ["config_id", "state"])
    op.create_index(
        "ix_trials_submission_id",
        "trials",
        ["submission_id"],
        sqlite_where=sa.text("submission_id IS NOT NULL"),
        postgresql_where=sa.text("submission_id IS NOT NULL"),
    )
