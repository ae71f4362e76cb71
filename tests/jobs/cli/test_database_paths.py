"""Paths of databases on the command line: with spaces, and of files that do not exist."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import open_store
from tests.db.conftest import Call
from tests.db.records import make_trial


def test_a_side_may_be_a_path_with_spaces(call: Call, folder: Path) -> None:
    with open_store("sqlite:///dropbench.db") as store:
        for seed in range(2):
            store.record([RunRecord(make_trial(seed), "succeeded", None, [], [("test/accuracy", -1, 70.0 + seed)])])
    (spaces := folder / "My  Drive").mkdir()
    shutil.copy("dropbench.db", spaces / "d.db")
    shutil.copy("dropbench.db", "plain.db")
    expected = json.loads(call("compare", "plain.db", "dropbench.db", "--json").out)
    assert len(expected) == 1
    sides = (f"{spaces}/d.db", "My  Drive/d.db", "My  Drive/d.db  seed=0,1", f"sqlite:///{spaces}/d.db")
    for old in sides:
        done = call("compare", old, "dropbench.db", "--json")
        assert done.out, done.err
        assert json.loads(done.out) == expected
    missing = f"{spaces}/e.db"
    assert "My Drive/e.db: no such file: expected a database" in call("compare", missing, "dropbench.db").err


@pytest.mark.parametrize(
    "command",
    [("results",), ("results", "--json"), ("compare", "", ""), ("compare", "--rank"), ("report", "quickstart")],
)
def test_a_database_that_does_not_exist_is_named(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DROPBENCH_DB", "sqlite:///elsewhere/bench.db")
    done = call(*command)
    assert done.err == "elsewhere/bench.db: no database yet (DROPBENCH_DB): `dropbench run SUITE` creates it\n"
    assert not (folder / "elsewhere").exists()
