"""Trials, run directories and records of runs, without any training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import METADATA
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.request import write_request
from dropbench.harness.trials.trial import DataRef, Trial
from tests.requests import named

STARTED, ENDED = "2026-01-02T03:04:05.000+00:00", "2026-01-02T03:05:05.000+00:00"


def make_trial(seed: int = 0, *, ratio: float = 0.3, data: str = "trec", **fields: Any) -> Trial:
    """Return a trial of DropKey, unless `fields` say otherwise."""
    values: dict[str, Any] = {
        "task": "text-classification",
        "data": DataRef(name=data, fingerprint="0123456789ab"),
        "model": "text-transformer",
        "regularizer": RegularizerSpec(name="dropkey", params={"ratio": ratio, "window": 1}),
        "preset": "mini",
        "recipe": {"epochs": 2, "lr": 0.001},
    }
    return Trial(**{**values, **fields}, seed=seed)


def make_directory(
    runs: Path,
    trial: Trial,
    *,
    attempts: Sequence[Mapping[str, Any]] = (),
    metrics: Mapping[str, Any] | None = None,
    suites: Iterable[str] = (),
    losses: Sequence[float] = (),
) -> RunDirectory:
    """Write a run directory as a worker leaves it."""
    directory = RunDirectory.create(runs, trial)
    for suite in suites:
        write_request(runs, named(suite, trial))
    for step, loss in enumerate(losses):
        directory.append_event("train", step=step, loss=loss, lr=0.01)
    for number, content in enumerate(attempts, 1):
        directory.write_attempt(number, dict(content))
    if metrics is not None:
        directory.write_result({"metrics": dict(metrics), "format": 1})
    return directory


def attempt(state: str, cause: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the content of the file of an attempt."""
    ended = None if state == "running" else ENDED
    return {"state": state, "cause": cause, "started_at": STARTED, "ended_at": ended, "host": "here", **fields}


def done(trial: Trial, accuracy: float | None, *more: tuple[str, int, float | None], **fields: Any) -> RunRecord:
    """Return the record of a trial that succeeded, with its accuracy on test and more metrics."""
    return RunRecord(trial, "succeeded", metrics=[("test/accuracy", -1, accuracy), *more], **fields)


def dump(store: Store, *without: str) -> dict[str, set[tuple[Any, ...]]]:
    """Return every row of every table except `without`."""
    with reading(store.engine) as connection:
        return {
            table.name: {tuple(map(repr, row)) for row in connection.execute(select(table))}
            for table in METADATA.sorted_tables
            if table.name not in without
        }
