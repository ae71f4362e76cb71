"""The tables. The run directories are the truth; these are an index of them, and the queue.

Of a PostgreSQL the two partial indexes are told by the migrations alone: to say so here would load its dialect at every
start. Without SQLAlchemy's ORM for the same reason: it is a quarter of a start, and nothing here is an object.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

REVISION = "0004"
"""The newest migration in `db.migrations`: opening a database that is at it needs no Alembic."""

FINAL = -1
"""The step of a final value in `Metrics`; the points of a curve have their own."""

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = String(12)
Time = String(32)
"""ISO 8601 in UTC: sorts as text, reads the same from every database and from the run directory."""


def _column(name: str, kind: TypeEngine[Any], *more: Any, **options: Any) -> Column[Any]:
    """A column that is never NULL."""
    return Column(name, kind, *more, nullable=False, **options)


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
"""What is averaged over seeds: a trial without its seed, as columns to filter by and whole (`Trial.config`)."""

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
"""Jobs handed to an executor; written before the job exists ("intended"), so that none is forgotten."""

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
    # `results` asks for the states of all configurations, and joins trials with metrics, both in the order of ids.
    Index("ix_trials_config_id_state", "config_id", "state"),
    Index("ix_trials_submission_id", "submission_id", sqlite_where=_submission.is_not(None)),
    sqlite_with_rowid=False,
)
"""One trial and its state. `weights` is the path of its initial weights, which is no part of its identity."""

Memberships = Table(
    "memberships",
    METADATA,
    _column("suite", String(200), primary_key=True),
    _column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True, index=True),
    sqlite_with_rowid=False,
)
"""Which suites asked for a trial; one trial may serve many."""

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
    Column("pieces", Integer()),
    sqlite_with_rowid=False,
)
"""One execution of a trial; as the files ``attempts/<n>.json`` of its run directory.

`waited_seconds`: since it was submitted, or since the attempt before it ended. `cpus`, `gpus`: what it was given, used
or not. `pieces`: that each micro-batch was cut into. `submission_id`: perhaps another database's.
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
    # `results` reads the final values of all trials; the curves are many times as many rows.
    Index("ix_metrics_final", "name", "config_id", "trial_id", "value", sqlite_where=_step == FINAL),
    sqlite_with_rowid=False,
)
"""Values by trial, name (``test/accuracy``) and step; NULL where the run reported no finite number.

`config_id`: of a final value, its trial's, so that those of a configuration are neighbours in an index.
"""
