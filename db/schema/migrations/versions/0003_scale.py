"""For a million trials: rows ordered by id, and indexes of states and final values ordered by configuration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change indexes; on SQLite, recreate the trials table without row numbers."""
    op.drop_index("ix_trials_config_id", "trials")
    op.drop_index("ix_trials_submission_id", "trials")
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table("trials", recreate="always", table_kwargs={"sqlite_with_rowid": False}):
            pass
    op.create_index("ix_trials_config_id_state", "trials", ["config_id", "state"])
    op.create_index("ix_trials_submission_id", "trials", ["submission_id"], **_where("submission_id IS NOT NULL"))
    op.add_column("metrics", sa.Column("config_id", sa.String(12)))
    config_id = "SELECT config_id FROM trials WHERE trials.id = metrics.trial_id"
    op.execute(f"UPDATE metrics SET config_id = ({config_id}) WHERE step = -1")
    op.drop_index("ix_metrics_final", "metrics")
    op.create_index("ix_metrics_final", "metrics", ["name", "config_id", "trial_id", "value"], **_where("step = -1"))


def _where(condition: str) -> dict[str, Any]:
    return {f"{dialect}_where": sa.text(condition) for dialect in ("sqlite", "postgresql")}
