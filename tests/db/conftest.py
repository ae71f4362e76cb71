"""Trials, run directories and databases without any training."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from db.connection import reading
from db.models import Base
from db.store import Store, open_store
from harness.regularizers.spec import RegularizerSpec
from harness.rundir import RunDirectory
from harness.trial import DataRef, Trial

STARTED, ENDED = "2026-01-02T03:04:05.000+00:00", "2026-01-02T03:05:05.000+00:00"


def _trial(seed: int = 0, *, ratio: float = 0.3, data: str = "trec", **fields: Any) -> Trial:
    values: dict[str, Any] = {
        "task": "text-classification",
        "data": DataRef(name=data, fingerprint="0123456789ab"),
        "model": "text-transformer",
        "regularizer": RegularizerSpec(name="dropkey", params={"ratio": ratio, "window": 1}),
        "preset": "mini",
        "recipe": {"epochs": 2, "lr": 0.001},
    }
    return Trial(**{**values, **fields}, seed=seed)


def _directory(
    runs: Path,
    trial: Trial,
    *,
    attempts: Sequence[Mapping[str, Any]] = (),
    metrics: Mapping[str, Any] | None = None,
    suites: Iterable[str] = (),
    losses: Sequence[float] = (),
) -> RunDirectory:
    directory = RunDirectory.create(runs, trial)
    if suites:
        directory.add_suites(list(suites))
    for step, loss in enumerate(losses):
        directory.append_event("train", step=step, loss=loss, lr=0.01)
    for number, content in enumerate(attempts, 1):
        directory.write_attempt(number, dict(content))
    if metrics is not None:
        directory.write_result({"metrics": dict(metrics), "format": 1})
    return directory


def _attempt(state: str, cause: str | None = None, **fields: Any) -> dict[str, Any]:
    ended = None if state == "running" else ENDED
    return {"state": state, "cause": cause, "started_at": STARTED, "ended_at": ended, "host": "here", **fields}


def _dump(store: Store, *without: str) -> dict[str, set[tuple[Any, ...]]]:
    """Every row of every table but those named."""
    with reading(store.engine) as connection:
        return {
            table.name: {tuple(map(repr, row)) for row in connection.execute(select(table))}
            for table in Base.metadata.sorted_tables
            if table.name not in without
        }


@pytest.fixture(scope="session")
def make_trial() -> Callable[..., Trial]:
    """(seed, ratio, data, **fields) → a trial."""
    return _trial


@pytest.fixture(scope="session")
def make_directory() -> Callable[..., RunDirectory]:
    """(runs, trial, attempts, metrics, suites, losses) → a run directory as a worker leaves it."""
    return _directory


@pytest.fixture(scope="session")
def attempt() -> Callable[..., dict[str, Any]]:
    """(state, cause, **fields) → the content of an attempt file."""
    return _attempt


@pytest.fixture(scope="session")
def dump() -> Callable[..., dict[str, set[tuple[Any, ...]]]]:
    """(store, *without) → all rows by table."""
    return _dump


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database, made once: migrating takes longer than copying."""
    file = tmp_path_factory.mktemp("template") / "empty.db"
    open_store(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def url(tmp_path: Path, template: Path) -> str:
    """The URL of an empty database of the test's own."""
    shutil.copy(template, tmp_path / "test.db")
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store."""
    with open_store(url) as opened:
        yield opened
