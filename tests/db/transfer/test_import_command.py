"""`dropbench db import`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import REVISION, Trials
from dropbench.db.store.store import Store
from tests.db.conftest import Call
from tests.db.records import make_trial
from tests.db.transfer.given import outcome


def test_the_command(call: Call, filled: Store, tmp_path: Path) -> None:
    assert call("db", "import", "there.db") == (
        0, "Added 6 trials, updated 0, 0 unchanged; added 1 ended submission.\n", "",
    )  # fmt: skip
    again = json.loads(call("db", "import", f"sqlite:///{tmp_path / 'there.db'}", "--json").out)
    assert again == {
        "added": 0, "updated": 0, "unchanged": 6, "conflicts": [], "refused": [], "submissions": 0, "requests": 0,
    }  # fmt: skip
    trial = make_trial(0, overrides={"lr": 1e-5, "name": "a\nb"})
    filled.record([outcome(trial, accuracy=79.0)])
    done = call("db", "import", "there.db")
    assert (done.code, done.out.startswith("Added 0 trials, updated 0, 5 unchanged;")) == (1, True)
    kept = "here and 79.0 there: kept (`--replace` takes the other)"
    assert done.err == f"conflict: trial {trial.id}: test/accuracy is 80.5 {kept}\n"
    done = call("db", "import", "there.db", "--replace")
    assert (done.code, done.err.endswith("79.0 there, which replaced it\n")) == (0, True)
    assert call("db", "import", "there.db").code == 0
    with writing(filled.engine) as connection:
        connection.execute(update(Trials).where(Trials.c.id == trial.id).values(seed=9))
    done = call("db", "import", "there.db")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith(f"left out: trial '{trial.id}': its configuration and seed are those of trial ")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nowhere: no such file: expected a database"),
        ("sqlite:///nowhere.db", "no such file"),
        ("sqlite://", "no such file"),
        ("x://y", "SOURCE: unknown database 'x': expected sqlite or postgresql"),
        ("://", "SOURCE: expected a SQLAlchemy URL"),
        ("text.db", "text.db: cannot be read (file is not a database): expected a complete DropBench database"),
        ("other.db", "other.db: not a DropBench database"),
        ("new.db", f"new.db: schema 9999 of another version of DropBench, expected {REVISION}"),
        ("hollow.db", "hollow.db: cannot be read (no such table: trials)"),
        ("dropbench.db", "dropbench.db: is the target of the import"),
        ("link.db", "link.db: is the target of the import"),
        ("empty", "empty: no such file: expected a database"),
    ],
)
def test_what_is_no_source_is_one_line(call: Call, tmp_path: Path, template: Path, source: str, message: str) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "empty").mkdir()
    with closing(sqlite3.connect("other.db")) as connection, connection:
        connection.execute("CREATE TABLE x (y)")
    for name, version in (("new", "9999"), ("hollow", REVISION), ("dropbench", REVISION)):
        shutil.copy2(template, tmp_path / f"{name}.db")
        with closing(sqlite3.connect(f"{name}.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
            if name == "hollow":
                connection.execute("DROP TABLE trials")
    (tmp_path / "link.db").symlink_to("dropbench.db")
    done = call("db", "import", source)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
