"""Trials, run directories and databases without any training."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import METADATA
from dropbench.db.store.store import Store, open_store
from dropbench.harness.cli.main import run
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.request import write_request
from dropbench.harness.trials import plugins
from dropbench.harness.trials.plugins import load_plugins
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import DataRef, Trial
from tests.jobs.workplace import PLUGIN
from tests.patience import PATIENCE, wait
from tests.requests import named

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
    for suite in suites:
        write_request(runs, named(suite, trial))
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
    """Return every row of every table except `without`."""
    with reading(store.engine) as connection:
        return {
            table.name: {tuple(map(repr, row)) for row in connection.execute(select(table))}
            for table in METADATA.sorted_tables
            if table.name not in without
        }


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with default settings."""
    for name in ("DROPBENCH_DB", "DROPBENCH_RUNS", "DROPBENCH_DATA", "DROPBENCH_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command line in that folder."""

    def run_it(*arguments: str) -> Done:
        capsys.readouterr()
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run_it


@pytest.fixture(scope="session")
def make_trial() -> Callable[..., Trial]:
    """(seed, ratio, data, **fields) → a trial."""
    return _trial


@pytest.fixture
def tiny_task() -> Iterator[None]:
    """The plug-in of `tests.jobs.tiny_task`, which makes trials without any data."""
    load_plugins([PLUGIN])
    yield
    # Other tests go through all that is registered.
    del TASKS._entries["tiny"], plugins._loaded[str(PLUGIN)]


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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """() → the URL of a fresh database on a private server, which listens only on a socket."""
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed (the extra `postgres`)")
    programs = _postgresql()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        shutil.chown(folder, user)
    log = folder / "log"
    with log.open("wb") as out:
        quiet: dict[str, Any] = {"user": user, "stdout": out, "stderr": out, "cwd": folder}
        make: list[str | Path] = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "me",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run(make, check=True, **quiet)
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
        process = subprocess.Popen([programs / "postgres", "-D", folder / "data", "-k", folder, *options], **quiet)
    try:
        _await_server(process, folder, log)
        numbers = itertools.count()

        def make_database() -> str:
            import psycopg

            name = f"test_{next(numbers)}"
            with psycopg.connect(f"host={folder} user=me dbname=postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
            return f"postgresql+psycopg://me@/{name}?host={folder}"

        yield make_database
    finally:
        process.send_signal(signal.SIGINT)  # without waiting for those who are connected
        process.wait(PATIENCE)
        shutil.rmtree(folder)


def _postgresql() -> Path:
    """Return the folder of the newest PostgreSQL's programs, which Debian does not add to the PATH."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).parent] if on_path else []
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(debian, key=lambda folder: folder.parent.name.zfill(4), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("no PostgreSQL server is installed")


def _await_server(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    import psycopg

    def accepts() -> bool:
        try:
            psycopg.connect(f"host={folder} user=me dbname=postgres").close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            return False
        return True

    wait(accepts, "the server")
