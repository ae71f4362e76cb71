"""The tables. The run directories are the truth; these are an index of them, and the queue."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

REVISION = "0004"
"""The newest migration in `db.migrations`: opening a database that is at it needs no Alembic."""

FINAL = -1
"""The step of a final value in `Metrics`; the points of a curve have their own."""

Id = String(12)
Time = String(32)
"""ISO 8601 in UTC: sorts as text, reads the same from every database and from the run directory."""


class Base(DeclarativeBase):
    """The registry of the tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Configs(Base):
    """What is averaged over seeds: a trial without its seed, as columns to filter by and whole (`Trial.config`)."""

    __tablename__ = "configs"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    task: Mapped[str] = mapped_column(Text)
    data: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    regularizer: Mapped[str] = mapped_column(Text)
    params: Mapped[dict[str, Any]] = mapped_column(JSON)
    schedule: Mapped[str] = mapped_column(Text)
    align: Mapped[str] = mapped_column(Text)
    preset: Mapped[str] = mapped_column(Text)
    overrides: Mapped[dict[str, Any]] = mapped_column(JSON)
    config: Mapped[dict[str, Any]] = mapped_column(JSON)


class Submissions(Base):
    """Jobs handed to an executor; written before the job exists ("intended"), so that none is forgotten."""

    __tablename__ = "submissions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    executor: Mapped[str] = mapped_column(Text)
    folder: Mapped[str] = mapped_column(Text)
    job_id: Mapped[str | None] = mapped_column(Text)
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(12), index=True)
    created_at: Mapped[str] = mapped_column(Time)
    ended_at: Mapped[str | None] = mapped_column(Time)
    username: Mapped[str | None] = mapped_column(Text)


class Trials(Base):
    """One trial and its state. `weights` is the path of its initial weights, which is no part of its identity."""

    __tablename__ = "trials"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    config_id: Mapped[str] = mapped_column(Id, ForeignKey(Configs.id))
    seed: Mapped[int] = mapped_column(Integer)
    weights: Mapped[str | None] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(12), index=True)
    reason: Mapped[str | None] = mapped_column(Text)
    submission_id: Mapped[str | None] = mapped_column(String(32), ForeignKey(Submissions.id))
    created_at: Mapped[str] = mapped_column(Time)
    updated_at: Mapped[str] = mapped_column(Time)

    __table_args__ = (
        # `results` asks for the states of all configurations, and joins trials with metrics, both in the order of ids.
        Index("ix_trials_config_id_state", "config_id", "state"),
        Index(
            "ix_trials_submission_id", "submission_id",
            sqlite_where=submission_id.is_not(None), postgresql_where=submission_id.is_not(None),
        ),
        {"sqlite_with_rowid": False},
    )  # fmt: skip


class Memberships(Base):
    """Which suites asked for a trial; one trial may serve many."""

    __tablename__ = "memberships"
    __table_args__ = ({"sqlite_with_rowid": False},)

    suite: Mapped[str] = mapped_column(String(200), primary_key=True)
    trial_id: Mapped[str] = mapped_column(Id, ForeignKey(Trials.id), primary_key=True, index=True)


class Attempts(Base):
    """One execution of a trial; as the files ``attempts/<n>.json`` of its run directory.

    `waited_seconds`: since it was submitted, or since the attempt before it ended. `cpus`, `gpus`: what it was given,
    used or not. `pieces`: that each micro-batch was cut into. `submission_id`: perhaps another database's.
    """

    __tablename__ = "attempts"
    __table_args__ = ({"sqlite_with_rowid": False},)

    trial_id: Mapped[str] = mapped_column(Id, ForeignKey(Trials.id), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(String(16))
    cause: Mapped[str | None] = mapped_column(Text)
    executor: Mapped[str | None] = mapped_column(Text)
    job_id: Mapped[str | None] = mapped_column(Text)
    host: Mapped[str | None] = mapped_column(Text)
    pid: Mapped[int | None] = mapped_column(Integer)
    started_at: Mapped[str | None] = mapped_column(Time)
    ended_at: Mapped[str | None] = mapped_column(Time)
    device: Mapped[str | None] = mapped_column(Text)
    cpu_seconds: Mapped[float | None] = mapped_column(Float(53))
    gpu_seconds: Mapped[float | None] = mapped_column(Float(53))
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    steps_done: Mapped[int | None] = mapped_column(Integer)
    message: Mapped[str | None] = mapped_column(Text)
    submission_id: Mapped[str | None] = mapped_column(String(32))
    waited_seconds: Mapped[float | None] = mapped_column(Float(53))
    cpus: Mapped[int | None] = mapped_column(Integer)
    gpus: Mapped[int | None] = mapped_column(Integer)
    pieces: Mapped[int | None] = mapped_column(Integer)


class Metrics(Base):
    """Values by trial, name (``test/accuracy``) and step; NULL where the run reported no finite number.

    `config_id`: of a final value, its trial's, so that those of a configuration are neighbours in an index.
    """

    __tablename__ = "metrics"

    trial_id: Mapped[str] = mapped_column(Id, ForeignKey(Trials.id), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    step: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    value: Mapped[float | None] = mapped_column(Float(53))
    config_id: Mapped[str | None] = mapped_column(Id)

    __table_args__ = (
        # `results` reads the final values of all trials; the curves are many times as many rows.
        Index(
            "ix_metrics_final", "name", "config_id", "trial_id", "value",
            sqlite_where=step == FINAL, postgresql_where=step == FINAL,
        ),
        {"sqlite_with_rowid": False},
    )  # fmt: skip
