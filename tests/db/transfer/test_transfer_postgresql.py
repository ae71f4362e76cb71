"""Results from a laptop's SQLite into a team's PostgreSQL, and back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.db.transfer.merge import transfer
from dropbench.db.transfer.source import open_source
from dropbench.harness.errors import InputError
from dropbench.harness.trials.trial import Trial
from tests.requests import named

DAY = "2026-01-01T00:00:00.000+00:00"


@pytest.fixture
def url(postgresql: Callable[[], str]) -> str:
    """A fresh database on the server of `tests/db/conftest.py` instead of a file."""
    return postgresql()


@pytest.fixture
def laptop(tmp_path: Path, template: Path, make_trial: Callable[..., Trial]) -> str:
    """The URL of a database with some trials, and with unusual texts and numbers."""
    file = f"sqlite:///{shutil.copy(template, tmp_path / 'laptop.db')}"
    more: dict[str, Any] = {"created_at": DAY, "updated_at": DAY}
    with open_store(file) as filled:
        trials = [make_trial(seed, overrides={"text": "ü\n\0"}) for seed in range(3)]
        filled.enqueue([trials[0]], [named("mine", trials[0])])
        filled.intend([trials[0].id], SubmissionRow("a" * 32, "local", "/", "laptop", 7))
        filled.end_submission("a" * 32)
        values = [("test/accuracy", -1, 0.1 + 0.2), ("test/loss", -1, None), ("train/loss", 2**31 - 1, 1e-300)]
        filled.record([RunRecord(trials[0], "succeeded", metrics=values, **more)])
        odd = {"number": 1, "state": "failed", "cause": "a\r\nb\t'", "peak_memory_bytes": 2**40, "started_at": DAY}
        filled.record([RunRecord(trials[1], "failed", "100%\r", attempts=[odd], **more)])
        filled.record([RunRecord(trials[2], "cancelled", **more)])
    return file


def test_there_and_back(laptop: str, store: Store, url: str, tmp_path: Path, dump: Callable[..., Any]) -> None:
    with open_store(laptop) as filled:
        before = dump(filled)
    for added in (3, 0):
        with open_source(laptop, url) as source:
            assert transfer(source, store).added == added
        assert dump(store) == before
    with open_store(f"sqlite:///{tmp_path / 'back.db'}") as back:
        with open_source(url, str(back.engine.url)) as source:
            assert transfer(source, back).added == 3
            with pytest.raises(Exception, match="read-only transaction"):
                source.connection.exec_driver_sql("DELETE FROM metrics")
        assert dump(back) == before


def test_text_that_postgresql_does_not_take(
    laptop: str, store: Store, url: str, make_trial: Callable[..., Trial]
) -> None:
    trial = make_trial(9)
    with open_store(laptop) as filled:
        filled.record([RunRecord(trial, "failed", "a\0b", created_at=DAY, updated_at=DAY)])
    with open_source(laptop, url) as source:
        assert transfer(source, store).refused == []
    assert store.states()[trial.id].reason == "a\ufffdb"


def test_what_is_no_source(store: Store, url: str, postgresql: Callable[[], str]) -> None:
    with pytest.raises(InputError, match="is the target of the import"), open_source(url, url):
        pass
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match="schema 9999 of another version"), open_source(url, "sqlite://"):
        pass
    hollow = postgresql().replace("me@", "me:secret@")
    for wrong, message in ((hollow, "not a DropBench database"), (hollow.replace("/test", "/no"), "does not exist")):
        with pytest.raises(InputError, match=message) as error, open_source(wrong, "sqlite://"):
            pass
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)
