"""Trials, run directories and databases without any training."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dropbench.db.store.store import Store, open_store
from dropbench.harness.cli.main import run
from dropbench.harness.trials import plugins
from dropbench.harness.trials.plugins import load_plugins
from dropbench.harness.trials.task import TASKS
from tests.jobs.workplace import PLUGIN
from tests.patience import PATIENCE, wait


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with default settings and a cache of its own."""
    for name in ("DROPBENCH_DB", "DROPBENCH_RUNS", "DROPBENCH_DATA", "DROPBENCH_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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


@pytest.fixture
def tiny_task() -> Iterator[None]:
    """The plug-in of `tests.jobs.tiny_task`, which makes trials without any data."""
    load_plugins([PLUGIN])
    yield
    # Other tests go through all that is registered.
    del TASKS._entries["tiny"], plugins._loaded[str(PLUGIN)]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database, made once: migrating takes longer than copying."""
    file = tmp_path_factory.mktemp("template") / "empty.db"
    open_store(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def url(tmp_path: Path, template: Path) -> str:
    """The URL of an empty database of the test's own."""
    shutil.copy2(template, tmp_path / "test.db")  # with its time, which marks it
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
        make = ["-D", "data", "-U", "me", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run([programs / "initdb", *make], check=True, **quiet)
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
