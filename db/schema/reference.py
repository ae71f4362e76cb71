"""Reference trials in a database for reading: results of others beside the user's own, under ids of their own."""

from __future__ import annotations

from typing import Literal, get_args

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, case, select

from dropbench.db.schema.tables import Id, Trials

Origin = Literal["own", "reference"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)

PREFIX = "r"
"""First character of the ids of reference trials and configurations; all other ids are hexadecimal."""

ORIGIN = case((Trials.c.config_id >= PREFIX, "reference"), else_="own").label("origin")
"""The origin of a trial as a column of a query."""

_METADATA = MetaData()

Details = Table(
    "details",
    _METADATA,
    Column("trial_id", Id, primary_key=True),
    Column("steps", Integer(), nullable=False),
    Column("selected_step", Integer(), nullable=False),
    Column("commit", Text()),
    Column("environment", Text(), nullable=False),
    Column("notes", Text(), nullable=False),
    sqlite_with_rowid=False,
)
"""Details of reference trials, besides the tables of every database.

`commit`: the code that trained it. `environment`: JSON with Python, libraries, device, threads and cores. `notes`: a
JSON list, such as on subsets of the data.
"""

Examples = Table(
    "examples",
    _METADATA,
    Column("examples_id", Id, primary_key=True),
    Column("header", Text(), nullable=False),
    Column("ids", Text(), nullable=False),
    Column("targets", Text(), nullable=False),
    sqlite_with_rowid=False,
)
"""The examples of a split of a data set, of which several trials have predictions.

`examples_id`: a digest of the other columns. `header`: JSON of a `dropbench.harness.predictions.schema.Header` without
the trial.
`ids`: digests of the examples' content, separated by spaces. `targets`: a JSON list of the numbers of their classes.
"""

Predicted = Table(
    "predicted",
    _METADATA,
    Column("trial_id", Id, primary_key=True),
    Column("split", Text(), primary_key=True),
    Column("examples_id", Id, nullable=False),
    Column("classes", Text(), nullable=False),
    sqlite_with_rowid=False,
)
"""Predictions of reference trials: `classes` is a JSON list of the numbers of the predicted classes."""

TABLES = (Details, Examples, Predicted)
"""The tables of a file of reference results besides those of every database."""


def stored_id(id: str, origin: Origin) -> str:
    """Return the id of a trial or configuration in a database that also has reference trials."""
    return id if origin == "own" else PREFIX + id[:-1]


def origin_of(id: str) -> Origin:
    """Return the origin of a trial, configuration or request by its id in a database."""
    return "reference" if id.startswith(PREFIX) else "own"


def has_reference(connection: Connection) -> bool:
    """Return whether a database has reference trials."""
    return connection.scalar(select(Trials.c.id).where(Trials.c.id >= PREFIX).limit(1)) is not None
