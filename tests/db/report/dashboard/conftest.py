"""A dashboard that listens, and what it tells of."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
import yaml

from db.report.dashboard.app import make_app
from db.store import Store
from harness.settings import Settings

if TYPE_CHECKING:
    from tests.db.report.conftest import Ran, Reader, Tables


@pytest.fixture
def place(folder: Path, store: Store, url: str, tables: Tables, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A folder with a suite of the user's, its database and runs."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("db.report.dashboard.live.REST", 0.0)
    suite = tables.suite()
    Path("mine.yaml").write_text(yaml.safe_dump(json.loads(suite.model_dump_json(exclude={"name"}))))
    asked = tables.ask(suite)
    ran.fill(store, folder / "runs", asked, tables.values)
    store.enqueue([(trial, "mine") for one in asked for trial in one.trials])
    return Settings(runs=folder / "runs", database=url)


@pytest.fixture
def port(place: Settings) -> Iterator[int]:
    """Where it listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(place), log_level="error", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def read(port: int, read: Callable[..., Reader]) -> Callable[..., Reader]:
    """As ever, and the pages, which ask the server as long as they are open, are closed before it ends."""
    return read
