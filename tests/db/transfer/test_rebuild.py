"""A rebuilt database gives the answers of the run directories, whatever happened to the one before it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dropbench.db.schema.tables import METADATA
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import SubmissionRow, open_store
from dropbench.db.transfer.rebuild import rebuild_database
from dropbench.harness.suites.request import request_files, write_request
from tests.db.records import attempt, done, dump, make_directory, make_trial
from tests.requests import named

if TYPE_CHECKING:
    from tests.db.conftest import Call, Done

URL = "sqlite:///dropbench.db"
SEEDS, FAST = 100, 17
"""Damages, and the distance of those of the fast tests: odd, so that they spoil the schema, rows and bytes."""
VALUES = (
    "NULL", "'bogus'", "''", "x'ff00'", "-1", "0", "1", "99.5", "9e999", "'{'", "'[]'", "char(0)", "zeroblob(9)",
)  # fmt: skip
SCHEMA = (
    "DROP VIEW v_results",
    "DROP VIEW v_results; CREATE VIEW v_results AS SELECT 1 AS metric, 2 AS value",
    "CREATE TRIGGER more AFTER INSERT ON metrics BEGIN UPDATE metrics SET value = 99.5; END",
    "CREATE TRIGGER none BEFORE UPDATE ON trials BEGIN SELECT RAISE(ABORT, 'no'); END",
    "DROP INDEX ix_metrics_final",
    "CREATE UNIQUE INDEX one ON trials(config_id, seed)",
    "DROP TABLE memberships",
    "ALTER TABLE trials RENAME COLUMN reason TO why",
    "UPDATE trials SET state = 'bogus'",
    "UPDATE memberships SET trial = (SELECT min(id) FROM trials)",
    'INSERT INTO memberships SELECT request, row, "column", 5, (SELECT max(id) FROM trials) FROM memberships',
    "UPDATE configs SET regularizer = 'none'",
    "UPDATE metrics SET config_id = (SELECT min(id) FROM configs)",
    "UPDATE metrics SET value = value + 1",
    "DELETE FROM metrics WHERE value > 81",
    "UPDATE requests SET suite = 'other'",
)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directories of two configurations, all of a suite, and their database, which also has a queued trial."""
    folder = tmp_path_factory.mktemp("campaign")
    runs, trials = folder / "runs", [make_trial(seed, ratio=ratio) for ratio in (0.3, 0.6) for seed in range(3)]
    for number, trial in enumerate(trials):
        metrics = {"test/accuracy": 80.0 + number, "dev/accuracy": 70.0 + number}
        make_directory(runs, trial, attempts=[attempt("succeeded")], metrics=metrics, losses=[2.0, 1.0])
    request = named("mine", *trials, make_trial(9))
    write_request(runs, request)
    url = f"sqlite:///{folder}/dropbench.db"
    rebuild_database(url, runs)
    with open_store(url) as store:
        store.enqueue([make_trial(9)], [request])
        store.intend([make_trial(9).id], SubmissionRow("a" * 32, "local", "/jobs", "elsewhere", 1))
    return folder


@pytest.fixture
def runs(folder: Path, campaign: Path) -> Path:
    """Copy the campaign to the working folder, with its times, which mark the database; return its run directories."""
    shutil.copytree(campaign, folder, dirs_exist_ok=True)
    return folder / "runs"


def look_old(file: Path) -> None:
    """Date a file back: a command waits for a process that is just writing to it."""
    os.utime(file, (time.time() - 1234.56789,) * 2)


def answers(call: Call) -> tuple[list[Any], Any]:
    status = json.loads(call("status", "--json").out)
    return rows_of(call("results", "--metric", "all", "--json")), {**status, "as_of": None}


def rows_of(done: Done) -> list[Any]:
    """Return the rows of results; a trial whose job was lost with its row is queued again."""
    return [{**row, "state": row["state"].replace("submitted", "queued")} for row in json.loads(done.out)]


def spoil_bytes(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    position = draw.randrange(len(content))
    match draw.randrange(5):
        case 0 | 1:
            content[position] ^= 1 << draw.randrange(8)
        case 2:
            content[position : position + 64] = draw.randbytes(64)
        case 3:
            content[position : position + 4096] = bytes(4096)
        case 4:
            del content[position:]
    file.write_bytes(content)


def spoil_rows(file: Path, draw: random.Random) -> None:
    table = draw.choice(METADATA.sorted_tables)
    column, key = draw.choice(list(table.columns)).name, next(iter(table.primary_key)).name
    value = draw.choice([*VALUES, f'(SELECT max("{column}") FROM {table.name})'])
    row = f'"{key}" = (SELECT "{key}" FROM {table.name} ORDER BY random() LIMIT 1)'
    change = (
        f"DELETE FROM {table.name}"
        if draw.random() < 0.2
        else f'UPDATE OR REPLACE {table.name} SET "{column}" = {value}'
    )
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        try:
            connection.execute(f"{change} WHERE {row}")
        except sqlite3.IntegrityError:  # NULL where none may be
            connection.execute(f"DELETE FROM {table.name} WHERE {row}")


def spoil(file: Path, seed: int) -> None:
    draw = random.Random(seed)
    if seed < len(SCHEMA):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.executescript(SCHEMA[seed])
    elif seed % 2:
        spoil_rows(file, draw)
    else:
        spoil_bytes(file, draw)
    look_old(file)


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[] if seed % FAST == 0 else pytest.mark.slow) for seed in range(SEEDS)],
)
def test_no_damage_gives_a_wrong_number_in_silence(call: Call, runs: Path, folder: Path, seed: int) -> None:
    expected = answers(call)
    spoil(folder / "dropbench.db", seed)
    for command in (["results", "--metric", "all", "--json"], ["db", "sql", "SELECT 1"], ["report", "mine"]):
        before = call(*command)
        if command[0] == "results" and "dropbench db rebuild" not in before.err:
            assert rows_of(before) == expected[0]
        assert before.code == 0 or before.err.count("\n") == 1, before.err
    rebuilt = call("db", "rebuild")
    assert rebuilt.code == 0
    rows, status = answers(call)
    if status != expected[1]:
        assert "left out: " in rebuilt.err or "1 trial of requests are nowhere" in rebuilt.out
        assert {**status, "queued": 1} == expected[1]
        rows, expected[0][:] = ([{**row, "state": None} for row in each] for each in (rows, expected[0]))
    assert rows == expected[0]
    with open_store(URL) as store, open_store(f"sqlite:///{folder}/other.db") as other:
        rebuild(other, runs)
        if status == expected[1]:
            other.enqueue([make_trial(9)])
        without_times = ("trials", "submissions")
        assert dump(store, *without_times) == dump(other, *without_times)


def test_the_old_file_is_renamed_and_the_rights_and_links_are_kept(call: Call, runs: Path, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    shutil.move("dropbench.db", "elsewhere/real.db")
    Path("dropbench.db").symlink_to("elsewhere/real.db")
    before = Path("elsewhere/real.db").read_bytes()
    Path("elsewhere/real.db").chmod(0o640)
    Path("elsewhere/.real.db.0123abcd").write_bytes(b"what a killed command left")
    said = call("db", "rebuild")
    assert Path("dropbench.db").is_symlink()
    (old,) = Path("elsewhere").glob("real.db.old-*")
    assert str(old) in said.out
    assert old.stat().st_mode & 0o777 == Path("elsewhere/real.db").stat().st_mode & 0o777 == 0o640
    Path("before.db").write_bytes(before)
    with closing(sqlite3.connect(old)) as kept, closing(sqlite3.connect("before.db")) as whole:
        assert list(kept.iterdump()) == list(whole.iterdump())
    assert {file.name for file in Path("elsewhere").iterdir()} == {"real.db", old.name}
    assert json.loads(call("status", "--json").out)["succeeded"] == 6


def test_what_run_directories_do_not_have_is_kept(call: Call, runs: Path) -> None:
    imported, asked = make_trial(7), named("imported", make_trial(7))
    with open_store(URL) as store:
        store.record([done(imported, 99.0)])
        store.add_requests([asked])
    expected = answers(call)
    for _ in range(2):
        assert "2 trials without a run directory" in call("db", "rebuild").out
        assert answers(call) == expected
    assert any(file.stem == asked.id for file in request_files(runs))
    with open_store(URL) as store:
        assert store.states()[make_trial(9).id].submission_id == "a" * 32
        assert [row.state for row in store.open_submissions()] == ["intended"]


def test_a_result_that_only_a_damaged_file_has_is_named(call: Call, runs: Path, folder: Path) -> None:
    with open_store(URL) as store:
        store.record([done(make_trial(7), 99.25)])
    file = folder / "dropbench.db"
    content = file.read_bytes()
    value = struct.pack(">d", 99.25)  # in the table and in its index
    assert content.count(value) == 2
    file.write_bytes(content.replace(value, struct.pack(">d", 98.25), 1))
    look_old(file)
    assert "dropbench db rebuild" in call("results").err
    rebuilt = call("db", "rebuild")
    assert f"left out: trial '{make_trial(7).id}': its result is in the damaged database alone" in rebuilt.err
    assert {row["mean"] for row in json.loads(call("results", "--json").out)} == {81.0, 84.0}


def test_a_database_in_use_is_left_alone(call: Call, runs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.db.transfer.rebuild.IN_USE_S", 0.2)
    with open_store(URL) as store:
        store.states()
        refused = call("db", "rebuild")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "dropbench.db: in use: end " in refused.err
    assert {file.name for file in folder.glob("*.db*")} == {"dropbench.db"}
    assert call("db", "rebuild").code == 0


def test_a_copy_is_checked_once(call: Call, runs: Path) -> None:
    shutil.copy("dropbench.db", "copy.db")
    note = "copy.db was copied, or written by another program: "
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DROPBENCH_DB", "sqlite:///copy.db")
        look_old(Path("copy.db"))
        assert call("results").err == f"{note}`dropbench db rebuild` takes its numbers from the runs\n"
        assert call("results").err == ""
    assert call("results").err == ""


@pytest.fixture
def foreign(postgresql: Callable[[], str], runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same campaign in a database on a server."""
    url = postgresql()
    monkeypatch.setenv("DROPBENCH_DB", url)
    rebuild_database(url, runs)
    with open_store(url) as store:
        store.enqueue([make_trial(9)], [])
        yield url


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trials SET state = 'bogus' WHERE seed = 1",
        "UPDATE configs SET regularizer = 'none'",
        "UPDATE metrics SET value = value + 1",
        "DELETE FROM memberships",
    ],
)
def test_the_rows_on_a_server_are_replaced(call: Call, foreign: str, statement: str) -> None:
    expected = answers(call)
    with open_store(foreign) as store, store.engine.begin() as connection:
        connection.exec_driver_sql(statement)
    before = call("results")
    assert before.code == 0 or (before.code == 2 and "dropbench db rebuild" in before.err)
    assert call("db", "rebuild").code == 0
    assert answers(call) == expected
