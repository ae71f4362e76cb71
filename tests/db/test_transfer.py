"""Results on their way from one database to another, through files or straight."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from db.connection import writing
from db.export import export
from db.models import REVISION, Attempts, Submissions, Trials
from db.snapshot import Snapshot
from db.source import open_source
from db.store import Store, SubmissionRow, open_store
from db.transfer import Transferred, told, transfer
from harness.errors import InputError
from harness.trial import Trial
from tests.db.conftest import Call

Dump = Callable[..., dict[str, set[tuple[Any, ...]]]]
Kind = Literal["csv", "parquet", "database"]

DAY = "2026-01-0{}T00:00:00.000+00:00"
ODD = 'ValueError: "a,b"\nline 2\r 50%\r100%\r\nend ; \u2028 ü =1+1'


def attempt(number: int, state: str = "failed", day: int = 1, host: str = "laptop", **more: Any) -> dict[str, Any]:
    none = {column.name: None for column in Attempts.__table__.columns if column.name != "trial_id"}
    given = {"number": number, "state": state, "host": host, "pid": 7, "started_at": DAY.format(day)}
    return {**none, **given, "ended_at": None if state == "running" else DAY.format(day + 1), **more}


def outcome(trial: Trial, state: Any = "succeeded", accuracy: float | None = 80.5, **more: Any) -> Snapshot:
    values = [("test/accuracy", -1, accuracy), ("train/loss", -1, 0.1)] if state == "succeeded" else []
    curve = [("train/loss", step, 1 / (step + 1)) for step in range(3)]
    times = {"created_at": DAY.format(1), "updated_at": DAY.format(2)}
    return Snapshot(trial, state, **{**times, "metrics": curve + values, "suites": ["mine"], **more})


@pytest.fixture
def there(tmp_path: Path, template: Path) -> Iterator[Store]:
    """The database that is imported from."""
    shutil.copy(template, tmp_path / "there.db")
    with open_store(f"sqlite:///{tmp_path / 'there.db'}") as opened:
        yield opened


@pytest.fixture
def filled(there: Store, make_trial: Callable[..., Trial]) -> Store:
    """Trials in all states that last, odd texts, numbers and values, an ended submission."""
    trials = [make_trial(seed, overrides={"lr": 1e-5, "name": "a\nb"}) for seed in range(6)]
    submission = SubmissionRow("a" * 32, "local", "/some\nwhere", "laptop", 7, username="me")
    there.enqueue([(trials[0], "other")])
    assert there.intend([trials[0].id], submission)
    there.submitted(submission.id, "12")
    there.end_submission(submission.id)
    used: dict[str, Any] = {
        "cpu_seconds": 0.1 + 0.2,
        "gpu_seconds": 1e-300,
        "peak_memory_bytes": 2**40,
        "submission_id": submission.id,
    }
    there.record(
        [
            outcome(trials[0], attempts=[attempt(1, cause=ODD), attempt(2, "succeeded", 2, **used)]),
            outcome(trials[1], accuracy=None),
            outcome(trials[2], "failed", reason=ODD, attempts=[attempt(1, message=ODD, cause="")]),
            outcome(trials[3], "cancelled", suites=["a", "b"]),
            outcome(
                trials[4], "queued", metrics=[("loss/ü, x", 3, 5e-324), ("big", 2**31 - 1, 1.7976931348623157e308)]
            ),
            outcome(trials[5], "skipped", reason="no data", metrics=[]),
        ]
    )
    with writing(there.engine) as connection:
        connection.execute(update(Attempts).where(Attempts.cause == "").values(cause=None))  # CSV has no empty text
    return there


def put(there: Store, store: Store, kind: Kind, folder: Path, **more: Any) -> Transferred:
    """Import one store into the other."""
    given = str(there.engine.url.database)
    if kind != "database":
        given = str(folder)
        shutil.rmtree(folder, ignore_errors=True)
        export(there, folder, kind)
    with open_source(given, str(store.engine.url)) as source:
        return transfer(source, store, **more)


def counts(done: Transferred) -> tuple[int, int, int, int, int]:
    return done.added, done.updated, done.unchanged, len(done.conflicts), len(done.refused)


@pytest.mark.parametrize("kind", ["csv", "parquet", "database"])
def test_round_trip(filled: Store, store: Store, kind: Kind, tmp_path: Path, dump: Dump) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    done = put(filled, store, kind, tmp_path / "out")
    assert counts(done) == (6, 0, 0, 0, 0)
    assert done.submissions == 1
    assert dump(store) == dump(filled)
    again = put(filled, store, kind, tmp_path / "out")
    assert counts(again) == (0, 0, 6, 0, 0)
    assert again.submissions == 0
    assert dump(store) == dump(filled), "importing again changes nothing"
    back = put(store, filled, kind, tmp_path / "back")
    assert counts(back) == (0, 0, 6, 0, 0)


def test_a_source_is_not_changed(filled: Store, store: Store, tmp_path: Path) -> None:
    filled.close()
    file = tmp_path / "there.db"
    before = file.read_bytes()
    with open_source(str(file), "sqlite://") as source:
        transfer(source, store)
        with pytest.raises(Exception, match=r"readonly|authoriz"):
            source.connection.exec_driver_sql("DELETE FROM metrics")
    assert file.read_bytes() == before


def test_what_is_at_work_there_waits_here(there: Store, store: Store, make_trial: Callable[..., Trial]) -> None:
    first, second = make_trial(0), make_trial(1)
    there.enqueue([(first, "mine"), (second, "mine")])
    there.intend([first.id, second.id], SubmissionRow("b" * 32, "slurm", "/", "cluster", 1))
    there.set_states({second.id: ("running", "a reason")})
    with writing(there.engine) as connection:
        rows = [{"trial_id": second.id, **attempt(1)}, {"trial_id": second.id, **attempt(2, "running", 2)}]
        connection.execute(insert(Attempts), rows)
    done = put(there, store, "database", Path())
    assert (done.added, done.submissions) == (2, 0)
    assert [(row.state, row.reason, row.submission_id) for row in store.states().values()] == [
        ("queued", None, None)
    ] * 2
    with store.engine.connect() as connection:
        assert connection.execute(select(Attempts.number, Attempts.state)).all() == [(1, "failed")]
        assert connection.execute(select(Submissions)).all() == []


class Case(NamedTuple):
    """A trial here and there, and what is to become of it: state here, hosts of its attempts."""

    here: tuple[str, list[dict[str, Any]]]
    there: tuple[str, list[dict[str, Any]]]
    state: str
    hosts: list[str]


OURS, THEIRS, MORE = attempt(1, day=2, host="here"), attempt(1), attempt(2, day=3)
CASES = {
    "a result wins": Case(("queued", []), ("succeeded", [THEIRS]), "succeeded", ["laptop"]),
    "over a failure": Case(
        ("failed", [OURS]), ("succeeded", [THEIRS, MORE]), "succeeded", ["laptop", "here", "laptop"]
    ),
    "and stays": Case(("succeeded", [OURS]), ("failed", [THEIRS]), "succeeded", ["here"]),
    "equal results": Case(("succeeded", [OURS]), ("succeeded", [THEIRS]), "succeeded", ["here"]),
    "over one that runs": Case(("running", [OURS]), ("succeeded", [THEIRS]), "succeeded", ["laptop", "here"]),
    "further on its way": Case(("queued", [THEIRS]), ("failed", [THEIRS, MORE]), "failed", ["laptop", "laptop"]),
    "not begun here": Case(("cancelled", []), ("failed", [THEIRS]), "failed", ["laptop"]),
    "not further": Case(("queued", [THEIRS]), ("failed", [THEIRS]), "queued", ["laptop"]),
    "on two ways": Case(("failed", [OURS]), ("queued", [THEIRS, MORE]), "failed", ["here"]),
    "at work here": Case(("running", []), ("failed", [THEIRS]), "running", []),
    "nothing done": Case(("queued", []), ("skipped", []), "queued", []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_of_two_the_one_that_knows_more(case: Case, there: Store, store: Store, make_trial: Any, dump: Dump) -> None:
    trial = make_trial()
    store.record([outcome(trial, case.here[0], attempts=case.here[1], suites=["ours"])])
    there.record([outcome(trial, case.there[0], attempts=case.there[1])])
    put(there, store, "database", Path())
    assert store.states()[trial.id].state == case.state
    assert store.suites([trial.id]) == {trial.id: ["mine", "ours"]}
    with store.engine.connect() as connection:
        found = connection.execute(select(Attempts.number, Attempts.host).order_by(Attempts.number)).all()
    assert [host for _, host in found] == case.hosts
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    before = dump(store)
    assert put(there, store, "database", Path()).updated == 0
    assert dump(store) == before


def test_results_that_differ(there: Store, store: Store, make_trial: Callable[..., Trial], dump: Dump) -> None:
    one, two, three = (make_trial(seed) for seed in range(3))
    store.record([outcome(one, attempts=[OURS]), outcome(two), outcome(three)])
    measured = [("entropy/mean", -1, 1.5)]
    there.record(
        [
            outcome(one, accuracy=81.0, attempts=[THEIRS], metrics=[("test/accuracy", -1, 81.0), *measured]),
            outcome(two, accuracy=None),
            outcome(three, metrics=[*outcome(three).metrics, *measured]),
        ]
    )
    done = put(there, store, "database", Path())
    assert [(one.metric, one.here, one.there) for one in done.conflicts] == [
        ("test/accuracy", 80.5, 81.0),
        ("test/accuracy", 80.5, None),
    ]
    assert counts(done) == (0, 1, 0, 2, 0), "the analysis of the third is new"
    assert ("'test/accuracy'", "80.5") in {row[1::2] for row in dump(store)["metrics"]}
    kept = dump(store, "metrics")
    assert kept == dump(store, "metrics")
    assert counts(put(there, store, "database", Path())) == (0, 0, 1, 2, 0)
    assert counts(put(there, store, "database", Path(), overrule=True)) == (0, 0, 1, 2, 0)
    ours = {row for row in dump(store)["metrics"] if row[0] == repr(one.id)}
    assert ours == {row for row in dump(there)["metrics"] if row[0] == repr(one.id)}
    with store.engine.connect() as connection:
        assert connection.execute(select(Attempts.host).order_by(Attempts.number)).scalars().all() == ["laptop", "here"]
    assert counts(put(there, store, "database", Path(), overrule=True)) == (0, 0, 3, 0, 0)


def test_lines_are_lines_whatever_is_named(there: Store, store: Store, make_trial: Callable[..., Trial]) -> None:
    trial, name = make_trial(), "test/\x1b[2J\n"
    store.record([outcome(trial, metrics=[(name, -1, 1.0)])])
    there.record([outcome(trial, metrics=[(name, -1, 2.0)])])
    (line,) = told(put(there, store, "database", Path()), False)
    assert line == f"conflict: trial {trial.id}: test/\ufffd[2J\ufffd is 1.0 here and 2.0 there: kept" + (
        " (--replace takes the other)"
    )


def test_an_import_that_was_interrupted(
    there: Store, store: Store, make_trial: Callable[..., Trial], dump: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.transfer.BATCH", 2)
    there.record([outcome(make_trial(seed)) for seed in range(7)])
    seen: list[int] = []

    def stop(count: int) -> None:
        seen.append(count)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put(there, store, "database", Path(), progress=stop)
    assert store.counts()["succeeded"] == 4, "whole trials, in order"
    assert {row[0] for row in dump(store)["metrics"]} == {row[0] for row in dump(store)["trials"]}
    assert counts(put(there, store, "database", Path())) == (3, 0, 4, 0, 0)
    assert dump(store) == dump(there)


def spoil(folder: Path, name: str, change: Callable[[list[list[str]]], None]) -> None:
    file = folder / f"{name}.csv"
    with file.open(newline="", encoding="utf-8") as content:
        rows = list(csv.reader(content))
    change(rows)
    with file.open("w", newline="", encoding="utf-8") as content:
        csv.writer(content).writerows(rows)


def cell(row: int, column: str, value: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        rows[row][rows[0].index(column)] = value

    return change


WRONG_FILES: dict[str, tuple[str, Callable[[list[list[str]]], object], str]] = {
    "missing column": ("attempts", lambda rows: [row.pop(2) for row in rows], "attempts.csv: no column 'state'"),
    "unknown column": ("trials", lambda rows: rows[0].append("x"), "unknown column of "),
    "double column": ("trials", lambda rows: rows[0].append("id"), "twice the column 'id'"),
    "word for a number": ("attempts", cell(1, "pid", "seven"), ": pid = 'seven': expected a whole number, or nothing"),
    "fraction": ("trials", cell(1, "seed", "1.0"), "trials.csv, line 6: seed = '1.0': expected a whole number"),
    "underscore": ("trials", cell(1, "seed", "1_0"), "seed = '1_0'"),
    "NaN": ("metrics", cell(1, "value", "nan"), "value = 'nan': expected a finite number, or nothing"),
    "infinity": ("metrics", cell(1, "value", "1e999"), "value = '1e999': expected a finite number"),
    "nothing": ("metrics", cell(1, "step", ""), "step = '': expected a whole number"),
    "short row": ("metrics", lambda rows: rows[3].pop(), "metrics.csv, line 4: 4 values: expected 5"),
    "twice": ("metrics", lambda rows: rows.append(rows[1]), "two rows have the same trial_id, name, step"),
    "a trial of nowhere": ("metrics", cell(1, "trial_id", "0" * 12), "trial_id = '000000000000': expected one that"),
    "no configuration": ("trials", cell(1, "config_id", "x"), "config_id = 'x': expected one that is in configs.csv"),
    "empty": ("configs", lambda rows: rows.clear(), "configs.csv: no column 'id'"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_FILES.values(), ids=list(WRONG_FILES))
def test_damaged_files(wrong: tuple[str, Any, str], filled: Store, store: Store, tmp_path: Path, dump: Dump) -> None:
    name, change, said = wrong
    export(filled, tmp_path / "out", "csv")
    spoil(tmp_path / "out", name, change)
    empty = dump(store)
    with pytest.raises(InputError) as error, open_source(str(tmp_path / "out"), str(store.engine.url)) as source:
        transfer(source, store)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert dump(store) == empty, "nothing is written before all is read"


def test_files_that_are_none(filled: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(filled, out, "csv")

    def said(file: str | None = None, content: bytes = b"") -> str:
        kept = (out / file).read_bytes() if file else b""
        if file:
            (out / file).write_bytes(content)
        with pytest.raises(InputError) as error, open_source(str(out), "sqlite://"):
            pass
        if file:
            (out / file).write_bytes(kept)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "metrics.csv: no UTF-8" in said("metrics.csv", (out / "metrics.csv").read_bytes() + b"\xff")
    assert "attempts.csv: no valid CSV: unexpected end" in said(
        "attempts.csv", (out / "attempts.csv").read_bytes() + b'"'
    )
    (out / "metrics.csv").rename(out / "metrics.txt")
    assert "metrics.csv: No such file or directory: expected a file" in said()
    (out / "trials.parquet").touch()
    assert "trials.csv and trials.parquet: expected one of them" in said()
    (out / "trials.csv").unlink()
    if pytest.importorskip("pyarrow", reason="pyarrow is not installed"):
        assert "configs.parquet: " in said()
        (out / "configs.parquet").write_bytes(b"PAR1" * 20)
        assert "configs.parquet: no valid Parquet: " in said()
    (out / "trials.parquet").unlink()
    assert "no trials.csv or trials.parquet: expected one of them, as dropbench db export writes it" in said()


def test_wrong_parquet(filled: Store, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    export(filled, out, "parquet")
    for column, values, said in (
        ("value", pyarrow.array([math.nan]), "row 1: value = nan: expected a finite number, or nothing"),
        ("step", pyarrow.array(["1"]), "row 1: step = '1': expected a whole number"),
        ("step", pyarrow.array([True]), "row 1: step = True: expected a whole number"),
        ("step", pyarrow.array([2**64 - 1], pyarrow.uint64()), "row 1: step = 18446744073709551615: expected"),
        ("step", pyarrow.array([None], pyarrow.int64()), "row 1: step = None: expected a whole number"),
        ("name", pyarrow.array([b"x"]), "row 1: name = b'x': expected text"),
    ):
        table = parquet.read_table(out / "metrics.parquet").slice(0, 1)
        parquet.write_table(
            table.set_column(table.schema.get_field_index(column), column, values), tmp_path / "metrics.parquet"
        )
        kept = (out / "metrics.parquet").read_bytes()
        shutil.copy(tmp_path / "metrics.parquet", out / "metrics.parquet")
        with pytest.raises(InputError) as error, open_source(str(out), "sqlite://"):
            pass
        assert said in str(error.value)
        (out / "metrics.parquet").write_bytes(kept)


DEEP = "[" * 100_000
WRONG_ROWS: dict[str, tuple[str, str, str]] = {
    "another's id": ("trials", "UPDATE trials SET seed = seed + 1", "expected these ids"),
    "another's configuration": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.recipe.lr', 1.0)",
        "expected these ids",
    ),
    "no JSON": ("trials", "UPDATE configs SET config = '{'", "its configuration is none"),
    "no object": ("trials", "UPDATE configs SET config = '5'", "its configuration is none"),
    "deep": ("trials", f"UPDATE configs SET config = '{DEEP}'", "its configuration is none"),
    "no configuration": ("trials", "DELETE FROM configs", "its configuration is none"),
    "surrogate": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.recipe', json('{\"a\":\"\\ud800\"}'))",
        "its configuration is none",
    ),
    "unknown field": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.more', 1)",
        "its configuration is none (more Extra inputs are not permitted",
    ),
    "seed": ("trials", "UPDATE trials SET seed = -1", "seed = -1: expected a whole number from 0 to 2147483647"),
    "state": ("trials", "UPDATE trials SET state = 'done'", "state = 'done': expected queued or "),
    "time": ("trials", "UPDATE trials SET created_at = 'yesterday'", "expected a time in UTC"),
    "zone": ("trials", "UPDATE trials SET updated_at = '2026-01-02T03:04:05+01:00'", "expected a time in UTC"),
    "text for a number": ("metrics", "UPDATE metrics SET value = 'x'", "metrics: value = 'x': expected a finite"),
    "infinite": ("metrics", "UPDATE metrics SET value = 9e999", "metrics: value = inf: expected a finite number"),
    "long": ("metrics", f"UPDATE metrics SET name = '{'x' * 201}' || name || step", "text of 200 characters at most"),
    "step": ("metrics", "UPDATE metrics SET step = -step - 5", "expected a whole number from -1 to"),
    "attempt": ("attempts", "UPDATE attempts SET state = 'queued'", "attempts: state = 'queued': expected running or"),
    "wide": ("attempts", "UPDATE attempts SET pid = 3000000000", "pid = 3000000000: expected a whole number"),
    "blob": ("attempts", "UPDATE attempts SET host = X'00ff'", r"host = b'\x00\xff': expected text"),
    "no result": ("metrics", "DELETE FROM metrics WHERE step = -1", "succeeded, but without final values"),
    "a result": ("trials", "UPDATE trials SET state = 'failed'", "failed, but with final values"),
}


@pytest.mark.parametrize("wrong", WRONG_ROWS.values(), ids=list(WRONG_ROWS))
def test_rows_that_are_not_theirs(
    wrong: tuple[str, str, str],
    there: Store,
    store: Store,
    make_trial: Callable[..., Trial],
    dump: Dump,
    tmp_path: Path,
) -> None:
    _, statement, said = wrong
    there.record([outcome(make_trial(), attempts=[attempt(1)])])
    there.close()
    with closing(sqlite3.connect(tmp_path / "there.db")) as connection, connection:
        connection.execute(statement)
    empty = dump(store)
    done = put(there, store, "database", Path())
    (line,) = done.refused
    assert said in line
    assert "\n" not in line
    assert len(line) < 500
    assert dump(store) == empty


def test_one_wrong_trial_keeps_no_other_away(filled: Store, store: Store, tmp_path: Path) -> None:
    with writing(filled.engine) as connection:
        connection.execute(update(Trials).where(Trials.seed == 3).values(seed=9))
        connection.execute(update(Submissions).values(pid=2**31))
    done = put(filled, store, "csv", tmp_path / "out")
    assert counts(done) == (5, 0, 0, 0, 2)
    assert done.refused[0].startswith(f"submission '{'a' * 32}': submissions: pid = 2147483648: expected")


def test_the_command(call: Call, filled: Store, tmp_path: Path, make_trial: Callable[..., Trial]) -> None:
    assert call("db", "import", "there.db") == (
        0, "6 trials are new, 0 brought up to date, 0 as they were; 1 ended submissions are new\n", "",
    )  # fmt: skip
    again = json.loads(call("db", "import", f"sqlite:///{tmp_path / 'there.db'}", "--json").out)
    assert again == {
        "added": 0, "updated": 0, "unchanged": 6, "conflicts": [], "refused": [], "submissions": 0,
    }  # fmt: skip
    assert call("db", "export", "out").code == 0
    assert call("db", "import", "out").code == 0
    trial = make_trial(0, overrides={"lr": 1e-5, "name": "a\nb"})
    filled.record([outcome(trial, accuracy=79.0)])
    done = call("db", "import", "there.db")
    assert (done.code, done.out.startswith("0 trials are new, 0 brought up to date, 5 as they were")) == (1, True)
    kept = "here and 79.0 there: kept (--replace takes the other)"
    assert done.err == f"conflict: trial {trial.id}: test/accuracy is 80.5 {kept}\n"
    done = call("db", "import", "there.db", "--replace")
    assert (done.code, done.err.endswith("79.0 there, which was taken\n")) == (0, True)
    assert call("db", "import", "there.db").code == 0
    with writing(filled.engine) as connection:
        connection.execute(update(Trials).where(Trials.id == trial.id).values(seed=9))
    done = call("db", "import", "there.db")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith(f"left out: trial '{trial.id}': is ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere", "nowhere: nothing there: expected a database, or a folder that dropbench db export wrote"),
        ("sqlite:///nowhere.db", "nothing there"),
        ("sqlite://", "nothing there"),
        ("x://y", "SOURCE: no database is called 'x': expected sqlite or postgresql"),
        ("://", "SOURCE: expected a SQLAlchemy URL"),
        ("text.db", "text.db: cannot be read (file is not a database): expected a whole database of DropBench"),
        ("other.db", "other.db: no database of DropBench"),
        (
            "old.db",
            f"old.db: schema 0001, expected {REVISION}; no source is changed: run dropbench db upgrade on it",
        ),
        ("new.db", f"new.db: made by a newer DropBench (schema 9999, this one knows {REVISION})"),
        ("hollow.db", "hollow.db: cannot be read (no such table: trials)"),
        ("dropbench.db", "dropbench.db: is the database itself"),
        ("link.db", "link.db: is the database itself"),
        ("empty", "empty: no trials.csv or trials.parquet"),
    ],
)
def test_what_is_no_source_is_one_line(call: Call, tmp_path: Path, template: Path, source: str, said: str) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "empty").mkdir()
    with closing(sqlite3.connect("other.db")) as connection, connection:
        connection.execute("CREATE TABLE x (y)")
    for name, version in (("old", "0001"), ("new", "9999"), ("hollow", REVISION), ("dropbench", REVISION)):
        shutil.copy(template, tmp_path / f"{name}.db")
        with closing(sqlite3.connect(f"{name}.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
            if name == "hollow":
                connection.execute("DROP TABLE trials")
    (tmp_path / "link.db").symlink_to("dropbench.db")
    done = call("db", "import", source)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
VALUES = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@settings(
    max_examples=12, deadline=None, database=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    rows=st.lists(st.tuples(st.sampled_from(["succeeded", "failed", "queued"]), TEXTS, TEXTS, VALUES), max_size=4),
    numbers=st.lists(VALUES, min_size=1, max_size=4),
)
def test_any_text_and_number_comes_through(
    kind: Kind, rows: list[tuple[Any, str, str, float | None]], numbers: list[float | None],
    tmp_path: Path, template: Path, make_trial: Callable[..., Trial], dump: Dump,
) -> None:  # fmt: skip
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for name in ("from.db", "to.db"):
        shutil.copy(template, tmp_path / name)
    with open_store(f"sqlite:///{tmp_path}/from.db") as there, open_store(f"sqlite:///{tmp_path}/to.db") as here:
        there.record(
            Snapshot(
                make_trial(seed, overrides={text: text}),
                state,
                reason,
                [text],
                [attempt(1, cause=reason, message=text, cpu_seconds=value)],
                [
                    *((text, step, number) for step, number in enumerate(numbers)),
                    *[(text, -1, value)] * (state == "succeeded"),
                ],
                DAY.format(1),
                DAY.format(2),
            )
            for seed, (state, text, reason, value) in enumerate(rows)
        )
        assert put(there, here, kind, tmp_path / "out").added == len(rows)
        assert dump(here) == dump(there)
