"""Configurations, trials, suites, submissions, attempts and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID, NAME, TIME = sa.String(12), sa.String(200), sa.String(32)
FINAL: dict[str, Any] = {f"{dialect}_where": sa.text("step = -1") for dialect in ("sqlite", "postgresql")}


def upgrade() -> None:
    """Create the six tables. The naming convention of `db.schema.tables` names their constraints."""
    op.create_table(
        "configs",
        sa.Column("id", ID, primary_key=True),
        *_columns(sa.Text(), "task", "data", "fingerprint", "model", "regularizer"),
        *_columns(sa.JSON(), "params"),
        *_columns(sa.Text(), "schedule", "align", "preset"),
        *_columns(sa.JSON(), "overrides", "config"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(32), primary_key=True),
        *_columns(sa.Text(), "executor", "folder"),
        sa.Column("job_id", sa.Text()),
        *_columns(sa.Text(), "host"),
        *_columns(sa.Integer(), "pid"),
        *_columns(sa.String(12), "state"),
        *_columns(TIME, "created_at"),
        sa.Column("ended_at", TIME),
    )
    op.create_index("ix_submissions_state", "submissions", ["state"])
    op.create_table(
        "trials",
        sa.Column("id", ID, primary_key=True),
        sa.Column("config_id", ID, sa.ForeignKey("configs.id"), nullable=False),
        *_columns(sa.Integer(), "seed"),
        sa.Column("weights", sa.Text()),
        *_columns(sa.String(12), "state"),
        sa.Column("reason", sa.Text()),
        sa.Column("submission_id", sa.String(32), sa.ForeignKey("submissions.id")),
        *_columns(TIME, "created_at", "updated_at"),
    )
    for column in ("config_id", "state", "submission_id"):
        op.create_index(f"ix_trials_{column}", "trials", [column])
    op.create_table("memberships", sa.Column("suite", NAME, primary_key=True), _trial_id(), sqlite_with_rowid=False)
    op.create_index("ix_memberships_trial_id", "memberships", ["trial_id"])
    op.create_table(
        "attempts",
        _trial_id(),
        sa.Column("number", sa.Integer(), autoincrement=False, primary_key=True),
        *_columns(sa.String(16), "state"),
        *_columns(sa.Text(), "cause", "executor", "job_id", "host", nullable=True),
        sa.Column("pid", sa.Integer()),
        *_columns(TIME, "started_at", "ended_at", nullable=True),
        sa.Column("device", sa.Text()),
        *_columns(sa.Float(53), "cpu_seconds", "gpu_seconds", nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("steps_done", sa.Integer()),
        sa.Column("message", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metrics",
        _trial_id(),
        sa.Column("name", NAME, primary_key=True),
        sa.Column("step", sa.Integer(), autoincrement=False, primary_key=True),
        sa.Column("value", sa.Float(53)),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_metrics_final", "metrics", ["name", "trial_id", "value"], **FINAL)


def _columns(type_: Any, *names: str, nullable: bool = False) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, type_, nullable=nullable) for name in names)


def _trial_id() -> sa.Column[Any]:
    return sa.Column("trial_id", ID, sa.ForeignKey("trials.id"), primary_key=True)
