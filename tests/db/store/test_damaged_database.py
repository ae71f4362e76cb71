"""Databases that are SQLite but not ours, or half ours: one line that names the way out, and `db rebuild` is one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import open_store
from tests.damage import write_long_ago
from tests.db.records import attempt, make_directory, make_trial
from tests.requests import named

if TYPE_CHECKING:
    from tests.db.conftest import Call

STATEMENTS = {
    "another program's": "DROP TABLE alembic_version",
    "a column renamed": "ALTER TABLE trials RENAME COLUMN reason TO why",
    "a column gone": "ALTER TABLE attempts DROP COLUMN device",
    "a table gone": "DROP TABLE memberships",
    "a version that is text": "UPDATE alembic_version SET version_num = 'new'",
    "no column for the version": "ALTER TABLE alembic_version RENAME COLUMN version_num TO number",
    "text in a number": "UPDATE trials SET seed = 'one'",
    "text in a value": "UPDATE metrics SET value = 'high'",
    "bytes in text": "UPDATE trials SET state = x'ff00'",
    "no JSON": "UPDATE configs SET config = '{'",
    "another configuration": "UPDATE configs SET config = '{}'",
    "parameters that are a list": "UPDATE configs SET params = '{'",
    "a time that is none": "UPDATE attempts SET started_at = 'yesterday'",
}


@pytest.fixture
def runs(folder: Path) -> Path:
    for seed in range(2):
        attempts, metrics = [attempt("succeeded")], {"test/accuracy": 80.0 + seed}
        make_directory(folder / "runs", make_trial(seed), attempts=attempts, metrics=metrics, suites=["mine"])
    with open_store("sqlite:///dropbench.db") as store:
        rebuild(store, folder / "runs")
        store.enqueue([make_trial(2)], [named("mine", make_trial(2))])
    return folder / "runs"


FAST = ("another program's", "a column renamed", "text in a number")


@pytest.mark.parametrize(
    "damage",
    [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in [*STATEMENTS, "text", "zeros"]],
)
def test_every_command_names_the_way_out(call: Call, runs: Path, folder: Path, damage: str) -> None:
    file = folder / "dropbench.db"
    if damage in STATEMENTS:
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(STATEMENTS[damage])
        connection.commit()
        connection.close()
    else:
        file.write_bytes(b"text" * 2000 if damage == "text" else bytes(10_000))
    write_long_ago(file)
    for command in (["status"], ["results"], ["db", "export", "out"]):
        done = call(*command)
        assert done.code in (0, 1, 2)
        assert done.code != 2 or (done.err.count("\n") == 1 and "dropbench db rebuild" in done.err), command
    content = file.read_bytes()
    done = call("db", "rebuild", "--json")
    assert (done.code, json.loads(done.out)["recorded"]) == (0, 2)
    (renamed,) = (path for path in folder.glob("dropbench.db.old-*") if path.name[-4] != "-")
    assert renamed.stat().st_size == len(content)
    (row,) = json.loads(call("results", "--json").out)
    assert (row["mean"], row["n"]) == (80.5, 2)
    assert json.loads(call("status", "--json").out)["succeeded"] == 2


def test_an_undamaged_database_keeps_its_queue(call: Call, runs: Path, folder: Path) -> None:
    assert call("db", "rebuild").code == 0
    assert json.loads(call("status", "--json").out)["queued"] == 1
