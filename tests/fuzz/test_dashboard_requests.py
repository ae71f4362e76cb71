"""Hostile requests to the dashboard: paths, queries, encodings and numbers; and damaged values in its database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dropbench.db.report.dashboard.app import make_app
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.jobs.queue.status import activity
from tests.fuzz.hostile import limited, texts

COLUMNS = (
    ("configs", "params"), ("configs", "config"), ("configs", "overrides"), ("configs", "data"), ("configs", "task"),
    ("trials", "seed"), ("trials", "state"), ("trials", "reason"), ("trials", "created_at"), ("trials", "libraries"),
    ("metrics", "value"), ("metrics", "name"), ("memberships", "trial"), ("requests", "suite"), ("requests", "content"),
)  # fmt: skip
VALUES = ("x", "", "{", "[]", "3", "null", '{"a": NaN}', "9" * 400, -1, 2**62, 1e300, b"\xff\0", None)

fuzzed = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], print_blob=False)
pytestmark = pytest.mark.slow


def client(database: str) -> TestClient:
    app = make_app(replace(Settings.from_environment(), database=database), activity)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=True)


@pytest.fixture(scope="module")
def pages(campaign: Path) -> TestClient:
    """A browser of the campaign's dashboard."""
    return client("sqlite:///dropbench.db")


def ask(pages: TestClient, path: str) -> None:
    """Send a request, and check its status."""
    with limited(60):
        assert pages.get(path).status_code in (200, 400, 404, 503), path


encoded = texts.map(lambda text: quote(text, safe="/?&=")) | st.sampled_from(["%", "%zz", "%00", "%ff", "%2e%2e/", "+"])


@fuzzed
@given(
    start=st.sampled_from(
        ["/", "/trial/", "/suite?name=", "/suite?name=tiny&variant=", "/suite?name=tiny&have=", "/?have="]
    ),
    text=encoded,
)
def test_requests(pages: TestClient, start: str, text: str) -> None:
    ask(pages, start + text)


@settings(fuzzed, max_examples=40)
@given(column=st.sampled_from(COLUMNS), value=st.sampled_from(VALUES))
def test_damaged_values(campaign: Path, column: tuple[str, str], value: object) -> None:
    shutil.copy("dropbench.db", "damaged.db")
    pages = client("sqlite:///damaged.db")
    connection = sqlite3.connect("damaged.db")
    (id,) = connection.execute("SELECT id FROM trials LIMIT 1").fetchone()
    try:
        connection.execute(f"UPDATE OR IGNORE {column[0]} SET {column[1]} = ?", (value,))
    except sqlite3.IntegrityError:
        return
    finally:
        connection.commit()
        connection.close()
    for path in ("/", "/suite?name=tiny", f"/trial/{id}"):
        ask(pages, path)
    with suppress(InputError):  # a dashboard that starts later refuses the file in one line, or shows it
        client("sqlite:///damaged.db")
