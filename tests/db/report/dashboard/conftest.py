"""A dashboard that accepts connections, and a database and runs for it to show."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn

from dropbench.db.report.dashboard.app import make_app
from dropbench.db.store.store import Store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.jobs.queue.status import activity
from tests.db.report import tables, written
from tests.patience import wait

if TYPE_CHECKING:
    from tests.db.report.conftest import Reader


@pytest.fixture
def settings(folder: Path, store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Create a folder with a user's suite, its database and runs."""
    for name in ("CACHE_COST_FACTOR", "MAX_ACTIVITY_AGE_S"):
        monkeypatch.setattr(f"dropbench.db.report.dashboard.live.{name}", 0.0)
    suite = tables.suite()
    tables.write(suite, Path("mine.yaml"))
    cells = tables.resolve(suite)
    written.fill(store, folder / "runs", cells, tables.values)
    store.add_requests([tables.request(suite, cells)])
    return Settings(runs=folder / "runs", database=url)


@pytest.fixture
def running(settings: Settings) -> RunDirectory:
    """Create the run directory of a trial that runs, as the database has it."""
    return RunDirectory.create(settings.runs, tables.resolve(tables.suite())[3].trials[0])


@pytest.fixture
def port(settings: Settings) -> Iterator[int]:
    """Start the dashboard and return its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(settings, activity), log_level="error", access_log=False, lifespan="off")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    wait(lambda: server.started, "the dashboard")
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def read(port: int, read: Callable[..., Reader]) -> Callable[..., Reader]:
    """Close the pages, which poll the server while they are open, before the server stops."""
    return read
