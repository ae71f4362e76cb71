"""Damaged rows of a source: the error is a single line, and the trial is not imported."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import Submissions, Trials
from dropbench.db.store.store import Store
from tests.damage import write_long_ago
from tests.db.records import dump, make_trial
from tests.db.transfer.given import attempt, counts, outcome, put

DEEP = "[" * 100_000
WRONG_ROWS: dict[str, tuple[str, str]] = {
    "another's id": ("UPDATE trials SET seed = seed + 1", "its configuration and seed are those of"),
    "another's configuration": (
        "UPDATE configs SET config = json_set(config, '$.recipe.lr', 1.0)",
        "its configuration and seed are those of",
    ),
    "no JSON": ("UPDATE configs SET config = '{'", "invalid configuration"),
    "no object": ("UPDATE configs SET config = '5'", "invalid configuration"),
    "deep": (f"UPDATE configs SET config = '{DEEP}'", "invalid configuration"),
    "no configuration": ("DELETE FROM configs", "invalid configuration"),
    "surrogate": (
        "UPDATE configs SET config = json_set(config, '$.recipe', json('{\"a\":\"\\ud800\"}'))",
        "invalid configuration",
    ),
    "unknown field": (
        "UPDATE configs SET config = json_set(config, '$.more', 1)",
        "invalid configuration (more Extra inputs are not permitted",
    ),
    "seed": ("UPDATE trials SET seed = -1", "seed = -1: expected a whole number from 0 to 2147483647"),
    "state": ("UPDATE trials SET state = 'done'", "state = 'done': expected queued or "),
    "time": ("UPDATE trials SET created_at = 'yesterday'", "expected a time in UTC"),
    "zone": ("UPDATE trials SET updated_at = '2026-01-02T03:04:05+01:00'", "expected a time in UTC"),
    "text for a number": ("UPDATE metrics SET value = 'x'", "metrics: value = 'x': expected a finite"),
    "infinite": ("UPDATE metrics SET value = 9e999", "metrics: value = inf: expected a finite number"),
    "long": (f"UPDATE metrics SET name = '{'x' * 201}' || name || step", "text of at most 200 characters"),
    "step": ("UPDATE metrics SET step = -step - 5", "expected a whole number from -1 to"),
    "attempt": ("UPDATE attempts SET state = 'queued'", "attempts: state = 'queued': expected running or"),
    "wide": ("UPDATE attempts SET pid = 3000000000", "pid = 3000000000: expected a whole number"),
    "blob": ("UPDATE attempts SET host = X'00ff'", r"host = b'\x00\xff': expected text"),
    "no result": ("DELETE FROM metrics WHERE step = -1", "succeeded, but without final values"),
    "a result": ("UPDATE trials SET state = 'failed'", "failed, but with final values"),
}


@pytest.mark.parametrize("wrong", WRONG_ROWS.values(), ids=list(WRONG_ROWS))
def test_rows_that_are_not_theirs(wrong: tuple[str, str], source_store: Store, store: Store, tmp_path: Path) -> None:
    statement, message = wrong
    source_store.record([outcome(make_trial(), attempts=[attempt(1)])])
    source_store.close()
    with closing(sqlite3.connect(tmp_path / "there.db")) as connection, connection:
        connection.execute(statement)
    write_long_ago(tmp_path / "there.db")
    empty = dump(store)
    done = put(source_store, store)
    (line,) = done.refused
    assert message in line
    assert "\n" not in line
    assert len(line) < 500
    assert dump(store) == empty


def test_one_wrong_trial_keeps_no_other_away(filled: Store, store: Store) -> None:
    with writing(filled.engine) as connection:
        connection.execute(update(Trials).where(Trials.c.seed == 3).values(seed=9))
        connection.execute(update(Submissions).values(pid=2**31))
    done = put(filled, store)
    assert counts(done) == (5, 0, 0, 0, 2)
    assert done.refused[0].startswith(f"submission '{'a' * 32}': submissions: pid = 2147483648: expected")
