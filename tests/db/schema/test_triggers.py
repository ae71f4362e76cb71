"""A database in which somebody has made a trigger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dropbench.db.store.store import Store
from dropbench.harness.cli.main import run
from tests.db.records import make_trial
from tests.input_errors import one_line


@pytest.mark.parametrize("action", ["ABORT", "FAIL", "ROLLBACK"])
def test_a_trigger_that_refuses_is_named(
    store: Store, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(tmp_path / "test.db") as connection:
        connection.execute(f"CREATE TRIGGER no BEFORE INSERT ON trials BEGIN SELECT RAISE({action}, 'not today'); END")
    connection.close()
    with one_line(r"test\.db: a trigger refuses the change: not today$"):
        store.enqueue([make_trial(0)])
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path}/test.db")
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    assert run(["enqueue", "quickstart"]) == 2
    assert capsys.readouterr().err.endswith("test.db: a trigger refuses the change: not today\n")
