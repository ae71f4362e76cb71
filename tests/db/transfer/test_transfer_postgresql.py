"""Results from a laptop's SQLite into a team's PostgreSQL, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.db.transfer.merge import transfer
from dropbench.db.transfer.source import open_source
from dropbench.harness.errors import InputError
from tests.db.records import dump, make_trial

DAY = "2026-01-01T00:00:00.000+00:00"


@pytest.fixture
def url(postgresql: Callable[[], str]) -> str:
    """A fresh database on the server of `tests/db/conftest.py` instead of a file."""
    return postgresql()


def test_there_and_back(filled: Store, store: Store, url: str, tmp_path: Path) -> None:
    before, laptop = dump(filled), str(filled.engine.url)
    for added in (6, 0):
        with open_source(laptop, url) as source:
            assert transfer(source, store).added == added
        assert dump(store) == before
    with open_store(f"sqlite:///{tmp_path / 'back.db'}") as back:
        with open_source(url, str(back.engine.url)) as source:
            assert transfer(source, back).added == 6
            with pytest.raises(Exception, match="read-only transaction"):
                source.connection.exec_driver_sql("DELETE FROM metrics")
        assert dump(back) == before


def test_text_that_postgresql_does_not_take(filled: Store, store: Store, url: str) -> None:
    trial = make_trial(9, overrides={"text": "ü\n\0"})
    filled.record([RunRecord(trial, "failed", "a\0b", created_at=DAY, updated_at=DAY)])
    with open_source(str(filled.engine.url), url) as source:
        assert transfer(source, store).refused == []
    assert store.states()[trial.id].reason == "a\ufffdb"
    assert store.trials([trial.id]) == {trial.id: trial}


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
