"""The tables: the queue, and an index of the run directories, which are the source of truth.

Start-up time decides two things. PostgreSQL's two partial indexes appear only in the migrations, because declaring them
would load its dialect at every start. SQLAlchemy's ORM, a quarter of the start-up time, is not used.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

REVISION = "0005"
"""The newest migration in `db.schema.migrations`; opening a database of this revision does not load Alembic."""

FINAL = -1
"""The step of final values in `Metrics`; the points of a curve have steps from 0."""

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = String(12)
Time = String(32)
"""ISO 8601 in UTC: sorts as text, and is the same in every database and in the run directory."""


def _column(name: str, type_: TypeEngine[Any], *constraints: Any, **options: Any) -> Column[Any]:
    """Return a column that is never NULL."""
    return Column(name, type_, *constraints, nullable=False, **options)


Configs = Table(
    "configs",
    METADATA,
    _column("id", Id, primary_key=True),
    _column("task", Text()),
    _column("data", Text()),
    _column("fingerprint", Text()),
    _column("model", Text()),
    _column("regularizer", Text()),
    _column("params", JSON()),
    _column("schedule", Text()),
    _column("align", Text()),
    _column("preset", Text()),
    _column("overrides", JSON()),
    _column("config", JSON()),
)
"""Trials without their seed: results are averaged over a configuration. `config` is `Trial.config` as JSON."""

Submissions = Table(
    "submissions",
    METADATA,
    _column("id", String(32), primary_key=True),
    _column("executor", Text()),
    _column("folder", Text()),
    Column("job_id", Text()),
    _column("host", Text()),
    _column("pid", Integer()),
    _column("state", String(12), index=True),
    _column("created_at", Time),
    Column("ended_at", Time),
    Column("username", Text()),
)
"""Jobs submitted to an executor. The row is written before the job exists ("intended"), so that no job is lost."""

_submission = Column("submission_id", String(32), ForeignKey(Submissions.c.id))

Trials = Table(
    "trials",
    METADATA,
    _column("id", Id, primary_key=True),
    _column("config_id", Id, ForeignKey(Configs.c.id)),
    _column("seed", Integer()),
    Column("weights", Text()),
    _column("state", String(12), index=True),
    Column("reason", Text()),
    _submission,
    _column("created_at", Time),
    _column("updated_at", Time),
    # `results` reads the states of all configurations, and joins trials with metrics, both ordered by id.
    Index("ix_trials_config_id_state", "config_id", "state"),
    Index("ix_trials_submission_id", "submission_id", sqlite_where=_submission.is_not(None)),
    sqlite_with_rowid=False,
)
"""Trials and their states. `weights` is the path of the initial weights, which is not part of a trial's identity."""

Memberships = Table(
    "memberships",
    METADATA,
    _column("suite", String(200), primary_key=True),
    _column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True, index=True),
    sqlite_with_rowid=False,
)
"""The suites that contain a trial; a trial may belong to many."""

Attempts = Table(
    "attempts",
    METADATA,
    _column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True),
    _column("number", Integer(), primary_key=True, autoincrement=False),
    _column("state", String(16)),
    Column("cause", Text()),
    Column("executor", Text()),
    Column("job_id", Text()),
    Column("host", Text()),
    Column("pid", Integer()),
    Column("started_at", Time),
    Column("ended_at", Time),
    Column("device", Text()),
    Column("cpu_seconds", Float(53)),
    Column("gpu_seconds", Float(53)),
    Column("peak_memory_bytes", BigInteger()),
    Column("steps_done", Integer()),
    Column("message", Text()),
    Column("submission_id", String(32)),
    Column("waited_seconds", Float(53)),
    Column("cpus", Integer()),
    Column("gpus", Integer()),
    Column("micro_batch_splits", Integer()),
    sqlite_with_rowid=False,
)
"""Executions of a trial, as in the files ``attempts/<n>.json`` of its run directory.

`waited_seconds`: since the submission, or the end of the previous attempt. `cpus`, `gpus`: allocated, used or not.
`micro_batch_splits`: parts per micro-batch. `submission_id`: may refer to another database's submission.
"""

_step = _column("step", Integer(), primary_key=True, autoincrement=False)

Metrics = Table(
    "metrics",
    METADATA,
    _column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True),
    _column("name", String(200), primary_key=True),
    _step,
    Column("value", Float(53)),
    Column("config_id", Id),
    # `results` reads the final values of all trials; curves have many times more rows.
    Index("ix_metrics_final", "name", "config_id", "trial_id", "value", sqlite_where=_step == FINAL),
    sqlite_with_rowid=False,
)
"""Values by trial, name (`harness.trials.metric.MetricName`) and step; NULL if the run reported no finite number.

`config_id`: set for final values, so that the values of a configuration are adjacent in an index.
"""
