"""Damaged, foreign and missing sources: the error is a single line, and nothing is imported."""

from __future__ import annotations

import csv
import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from db.schema.connection import writing
from db.schema.tables import Submissions, Trials
from db.store.store import Store
from db.transfer.export import export
from db.transfer.merge import transfer
from db.transfer.source import open_source
from harness.errors import InputError
from harness.trials.trial import Trial
from tests.db.transfer.given import Dump, attempt, counts, outcome, put


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
    "double column": ("trials", lambda rows: rows[0].append("id"), "duplicate column 'id'"),
    "word for a number": ("attempts", cell(1, "pid", "seven"), ": pid = 'seven': expected a whole number, or nothing"),
    "fraction": ("trials", cell(1, "seed", "1.0"), "trials.csv, line 6: seed = '1.0': expected a whole number"),
    "underscore": ("trials", cell(1, "seed", "1_0"), "seed = '1_0'"),
    "NaN": ("metrics", cell(1, "value", "nan"), "value = 'nan': expected a finite number, or nothing"),
    "infinity": ("metrics", cell(1, "value", "1e999"), "value = '1e999': expected a finite number"),
    "nothing": ("metrics", cell(1, "step", ""), "step = '': expected a whole number"),
    "short row": ("metrics", lambda rows: rows[3].pop(), "metrics.csv, line 4: 4 values: expected 5"),
    "twice": ("metrics", lambda rows: rows.append(rows[1]), "two rows have the same trial_id, name, step"),
    "a trial of nowhere": ("metrics", cell(1, "trial_id", "0" * 12), "trial_id = '000000000000': expected one of"),
    "no configuration": ("trials", cell(1, "config_id", "x"), "config_id = 'x': expected one of configs.csv"),
    "empty": ("configs", lambda rows: rows.clear(), "configs.csv: no column 'id'"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_FILES.values(), ids=list(WRONG_FILES))
def test_damaged_files(wrong: tuple[str, Any, str], filled: Store, store: Store, tmp_path: Path, dump: Dump) -> None:
    name, change, message = wrong
    export(filled, tmp_path / "out", "csv")
    spoil(tmp_path / "out", name, change)
    empty = dump(store)
    with pytest.raises(InputError) as error, open_source(str(tmp_path / "out"), str(store.engine.url)) as source:
        transfer(source, store)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert dump(store) == empty, "nothing is written before all is read"


def test_files_that_are_none(filled: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(filled, out, "csv")

    def error_message(file: str | None = None, content: bytes = b"") -> str:
        kept = (out / file).read_bytes() if file else b""
        if file:
            (out / file).write_bytes(content)
        with pytest.raises(InputError) as error, open_source(str(out), "sqlite://"):
            pass
        if file:
            (out / file).write_bytes(kept)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "metrics.csv: not UTF-8" in error_message("metrics.csv", (out / "metrics.csv").read_bytes() + b"\xff")
    assert "attempts.csv: not valid CSV: unexpected end" in error_message(
        "attempts.csv", (out / "attempts.csv").read_bytes() + b'"'
    )
    (out / "metrics.csv").rename(out / "metrics.txt")
    os.mkfifo(out / "metrics.csv")
    assert "metrics.csv: not a regular file: expected a file" in error_message()
    (out / "metrics.csv").unlink()
    assert "metrics.csv: No such file or directory: expected a file" in error_message()
    (out / "trials.parquet").touch()
    assert "trials.csv and trials.parquet: expected one of them" in error_message()
    (out / "trials.csv").unlink()
    if pytest.importorskip("pyarrow", reason="pyarrow is not installed"):
        assert "configs.parquet: " in error_message()
        (out / "configs.parquet").write_bytes(b"PAR1" * 20)
        assert "configs.parquet: not valid Parquet: " in error_message()
    (out / "trials.parquet").unlink()
    assert (
        "no trials.csv or trials.parquet: expected one of them, as `dropbench db export` writes it" in error_message()
    )


def test_wrong_parquet(filled: Store, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    export(filled, out, "parquet")
    for column, values, message in (
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
        assert message in str(error.value)
        (out / "metrics.parquet").write_bytes(kept)


DEEP = "[" * 100_000
WRONG_ROWS: dict[str, tuple[str, str, str]] = {
    "another's id": ("trials", "UPDATE trials SET seed = seed + 1", "its configuration and seed are those of"),
    "another's configuration": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.recipe.lr', 1.0)",
        "its configuration and seed are those of",
    ),
    "no JSON": ("trials", "UPDATE configs SET config = '{'", "invalid configuration"),
    "no object": ("trials", "UPDATE configs SET config = '5'", "invalid configuration"),
    "deep": ("trials", f"UPDATE configs SET config = '{DEEP}'", "invalid configuration"),
    "no configuration": ("trials", "DELETE FROM configs", "invalid configuration"),
    "surrogate": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.recipe', json('{\"a\":\"\\ud800\"}'))",
        "invalid configuration",
    ),
    "unknown field": (
        "trials",
        "UPDATE configs SET config = json_set(config, '$.more', 1)",
        "invalid configuration (more Extra inputs are not permitted",
    ),
    "seed": ("trials", "UPDATE trials SET seed = -1", "seed = -1: expected a whole number from 0 to 2147483647"),
    "state": ("trials", "UPDATE trials SET state = 'done'", "state = 'done': expected queued or "),
    "time": ("trials", "UPDATE trials SET created_at = 'yesterday'", "expected a time in UTC"),
    "zone": ("trials", "UPDATE trials SET updated_at = '2026-01-02T03:04:05+01:00'", "expected a time in UTC"),
    "text for a number": ("metrics", "UPDATE metrics SET value = 'x'", "metrics: value = 'x': expected a finite"),
    "infinite": ("metrics", "UPDATE metrics SET value = 9e999", "metrics: value = inf: expected a finite number"),
    "long": ("metrics", f"UPDATE metrics SET name = '{'x' * 201}' || name || step", "text of at most 200 characters"),
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
    source_store: Store,
    store: Store,
    make_trial: Callable[..., Trial],
    dump: Dump,
    tmp_path: Path,
) -> None:
    _, statement, message = wrong
    source_store.record([outcome(make_trial(), attempts=[attempt(1)])])
    source_store.close()
    with closing(sqlite3.connect(tmp_path / "there.db")) as connection, connection:
        connection.execute(statement)
    empty = dump(store)
    done = put(source_store, store, "database", Path())
    (line,) = done.refused
    assert message in line
    assert "\n" not in line
    assert len(line) < 500
    assert dump(store) == empty


def test_one_wrong_trial_keeps_no_other_away(filled: Store, store: Store, tmp_path: Path) -> None:
    with writing(filled.engine) as connection:
        connection.execute(update(Trials).where(Trials.c.seed == 3).values(seed=9))
        connection.execute(update(Submissions).values(pid=2**31))
    done = put(filled, store, "csv", tmp_path / "out")
    assert counts(done) == (5, 0, 0, 0, 2)
    assert done.refused[0].startswith(f"submission '{'a' * 32}': submissions: pid = 2147483648: expected")
