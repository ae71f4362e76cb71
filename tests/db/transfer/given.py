"""Shared by the tests of imports: records, and the import itself."""

from __future__ import annotations

from typing import Any

from dropbench.db.schema.tables import Attempts
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.transfer.merge import ImportSummary, transfer
from dropbench.db.transfer.source import open_source
from dropbench.harness.trials.trial import Trial

DAY = "2026-01-0{}T00:00:00.000+00:00"
ODD = 'ValueError: "a,b"\nline 2\r 50%\r100%\r\nend ; \u2028 ü =1+1'


def attempt(number: int, state: str = "failed", day: int = 1, host: str = "laptop", **more: Any) -> dict[str, Any]:
    none = {column.name: None for column in Attempts.columns if column.name != "trial_id"}
    given = {"number": number, "state": state, "host": host, "pid": 7, "started_at": DAY.format(day)}
    return {**none, **given, "ended_at": None if state == "running" else DAY.format(day + 1), **more}


def outcome(trial: Trial, state: Any = "succeeded", accuracy: float | None = 80.5, **more: Any) -> RunRecord:
    values = [("test/accuracy", -1, accuracy), ("train/loss", -1, 0.1)] if state == "succeeded" else []
    curve = [("train/loss", step, 1 / (step + 1)) for step in range(3)]
    times = {"created_at": DAY.format(1), "updated_at": DAY.format(2)}
    return RunRecord(trial, state, **{**times, "metrics": curve + values, **more})


def put(source_store: Store, store: Store, **more: Any) -> ImportSummary:
    """Import one store into the other."""
    with open_source(str(source_store.engine.url.database), str(store.engine.url)) as source:
        return transfer(source, store, **more)


def counts(done: ImportSummary) -> tuple[int, int, int, int, int]:
    return done.added, done.updated, done.unchanged, len(done.conflicts), len(done.refused)
