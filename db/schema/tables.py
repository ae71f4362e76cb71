"""The tables: the queue, and an index of the run directories, which are the source of truth.

Start-up time decides two things. The migration makes partial indexes partial on PostgreSQL, too, because declaring that
here would load its dialect at every start. SQLAlchemy's ORM, a quarter of the start-up time, is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from sqlalchemy import JSON, BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

REVISION = "0001"
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

SubmissionState = Literal["intended", "submitted", "ended"]


def _columns(type_: TypeEngine[Any], *names: str, nullable: bool = True) -> Iterator[Column[Any]]:
    return (Column(name, type_, nullable=nullable) for name in names)


_required = partial(_columns, nullable=False)


Configs = Table(
    "configs",
    METADATA,
    Column("id", Id, primary_key=True),
    *_required(Text(), "task", "data", "fingerprint", "model", "regularizer"),
    *_required(JSON(), "params"),
    *_required(Text(), "schedule", "align", "preset"),
    *_required(JSON(), "overrides", "config"),
    Column("result_versions", Text()),
)
"""Trials without their seed: results are averaged over a configuration. `config` is `Trial.config` as JSON.

`result_versions`: `Trial.result_versions_text`, NULL if all are 1.
"""

Submissions = Table(
    "submissions",
    METADATA,
    Column("id", String(32), primary_key=True),
    *_required(Text(), "executor", "folder"),
    Column("job_id", Text()),
    *_required(Text(), "host"),
    *_required(Integer(), "pid"),
    Column("state", String(12), nullable=False, index=True),
    *_required(Time, "created_at"),
    Column("ended_at", Time),
    Column("username", Text()),
)
"""Jobs submitted to an executor. The row is written before the job exists ("intended"), so that no job is lost."""

_submission = Column("submission_id", String(32), ForeignKey(Submissions.c.id))
_libraries = Column("libraries", Text())

Trials = Table(
    "trials",
    METADATA,
    Column("id", Id, primary_key=True),
    Column("config_id", Id, ForeignKey(Configs.c.id), nullable=False),
    *_required(Integer(), "seed"),
    Column("weights", Text()),
    Column("state", String(12), nullable=False, index=True),
    Column("reason", Text()),
    _submission,
    *_required(Time, "created_at", "updated_at"),
    _libraries,
    Index("ix_trials_libraries", "libraries", "config_id", sqlite_where=_libraries.is_not(None)),
    # `results` reads the states of all configurations, and joins trials with metrics, both ordered by id.
    Index("ix_trials_config_id_state", "config_id", "state"),
    Index("ix_trials_submission_id", "submission_id", sqlite_where=_submission.is_not(None)),
    sqlite_with_rowid=False,
)
"""Trials and their states. `weights` is the path of the initial weights, which is not part of a trial's identity.

`libraries`: versions of Python, torch and the library that the task's models are from, NULL if they are unknown.
"""

Requests = Table(
    "requests",
    METADATA,
    Column("id", Id, primary_key=True),
    Column("suite", String(200), index=True),
    *_required(Text(), "preset"),
    *_required(Time, "created_at"),
    *_required(JSON(), "content"),
)
"""Requests of users, as in the files ``requests/<id>.json`` next to the run directories.

`suite`: NULL for a request without one. `content`: `dropbench.harness.suites.request.Request` as JSON.
"""

Memberships = Table(
    "memberships",
    METADATA,
    Column("request", Id, ForeignKey(Requests.c.id), primary_key=True),
    Column("row", Text(), primary_key=True),
    Column("column", Text(), primary_key=True),
    Column("candidate", Integer(), primary_key=True, autoincrement=False),
    Column("trial", Id, primary_key=True, index=True),
    sqlite_with_rowid=False,
)
"""The trials of each cell of a request. A trial may belong to many, and a request may name trials of other databases.

`candidate`: the position, from 0, among the configurations that a cell with a sweep chooses from.
"""

Attempts = Table(
    "attempts",
    METADATA,
    Column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True),
    Column("number", Integer(), primary_key=True, autoincrement=False),
    *_required(String(16), "state"),
    *_columns(Text(), "cause", "executor", "job_id", "host"),
    *_columns(Integer(), "pid"),
    *_columns(Time, "started_at", "ended_at"),
    *_columns(Text(), "device"),
    *_columns(Float(53), "cpu_seconds", "gpu_seconds"),
    *_columns(BigInteger(), "peak_memory_bytes"),
    *_columns(Integer(), "steps_done"),
    *_columns(Text(), "message"),
    *_columns(String(32), "submission_id"),
    *_columns(Float(53), "waited_seconds"),
    *_columns(Integer(), "cpus", "gpus", "micro_batch_splits", "steps"),
    *_columns(Float(53), "steps_per_second"),
    sqlite_with_rowid=False,
)
"""Executions of a trial, as in the files ``attempts/<n>.json`` of its run directory.

`waited_seconds`: since the submission, or the end of the previous attempt. `cpus`, `gpus`: allocated, used or not.
`micro_batch_splits`: parts per micro-batch. `submission_id`: may refer to another database's submission.
`steps`: of the whole trial. `steps_per_second`: of training, evaluations included; NULL if the attempt was too short.
"""

_step = Column("step", Integer(), primary_key=True, autoincrement=False)

Metrics = Table(
    "metrics",
    METADATA,
    Column("trial_id", Id, ForeignKey(Trials.c.id), primary_key=True),
    Column("name", String(200), primary_key=True),
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
