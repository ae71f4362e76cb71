"""Configurations, trials, suites, submissions, attempts and metrics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the six tables."""
    op.create_table(
        "configs",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("regularizer", sa.Text(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("align", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_configs"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text()),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("ended_at", sa.String(32)),
        sa.PrimaryKeyConstraint("id", name="pk_submissions"),
    )
    op.create_index("ix_submissions_state", "submissions", ["state"])
    op.create_table(
        "trials",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("config_id", sa.String(12), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("weights", sa.Text()),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("submission_id", sa.String(32)),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("updated_at", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(["config_id"], ["configs.id"], name="fk_trials_config_id"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_trials_submission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
    )
    for column in ("config_id", "state", "submission_id"):
        op.create_index(f"ix_trials_{column}", "trials", [column])
    op.create_table(
        "memberships",
        sa.Column("suite", sa.String(200), nullable=False),
        sa.Column("trial_id", sa.String(12), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_memberships_trial_id"),
        sa.PrimaryKeyConstraint("suite", "trial_id", name="pk_memberships"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_memberships_trial_id", "memberships", ["trial_id"])
    op.create_table(
        "attempts",
        sa.Column("trial_id", sa.String(12), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("cause", sa.Text()),
        sa.Column("executor", sa.Text()),
        sa.Column("job_id", sa.Text()),
        sa.Column("host", sa.Text()),
        sa.Column("pid", sa.Integer()),
        sa.Column("started_at", sa.String(32)),
        sa.Column("ended_at", sa.String(32)),
        sa.Column("device", sa.Text()),
        sa.Column("cpu_seconds", sa.Float(53)),
        sa.Column("gpu_seconds", sa.Float(53)),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("steps_done", sa.Integer()),
        sa.Column("message", sa.Text()),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_attempts_trial_id"),
        sa.PrimaryKeyConstraint("trial_id", "number", name="pk_attempts"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metrics",
        sa.Column("trial_id", sa.String(12), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(53)),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_metrics_trial_id"),
        sa.PrimaryKeyConstraint("trial_id", "name", "step", name="pk_metrics"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_metrics_final",
        "metrics",
        ["name", "trial_id", "value"],
        sqlite_where=sa.text("step = -1"),
        postgresql_where=sa.text("step = -1"),
    )
