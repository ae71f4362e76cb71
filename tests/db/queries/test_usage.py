"""The cost of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dropbench.db.queries.usage import table, usage
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import Store, SubmissionRow
from tests.db.records import make_directory, make_trial
from tests.requests import named


def attempt(state: str, start: int, end: int | None, **fields: Any) -> dict[str, Any]:
    """Return an attempt from one minute of the day to another."""
    times = [
        None if minute is None else f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00.000+00:00"
        for minute in (start, end)
    ]
    return {"state": state, "started_at": times[0], "ended_at": times[1], **fields}


def test_what_attempts_cost(store: Store, tmp_path: Path) -> None:
    trials = [make_trial(seed) for seed in range(3)]
    ids = [trial.id for trial in trials]
    store.enqueue(trials[:3], [named("a", trials[0]), named("b", *trials[:2])])
    assert store.intend(ids[:2], SubmissionRow("s1", "slurm", "/", "here", 1, username="ann")) == ids[:2]
    mine = {"submission": "s1", "gpus": 2, "cpus": 4}
    make_directory(
        tmp_path,
        trials[0],
        attempts=[
            attempt("node_failure", 0, 30, waited_seconds=1800, peak_memory_bytes=2**30, **mine),
            attempt("succeeded", 60, 120, waited_seconds=1800, peak_memory_bytes=2**31, **mine),
        ],
        metrics={"test/accuracy": 1.0},
    )
    make_directory(tmp_path, trials[1], attempts=[attempt("failed", 0, 15, **mine)])
    make_directory(tmp_path, trials[2], attempts=[attempt("failed", 0, 60)])  # by an older version
    rebuild(store, tmp_path)

    (nobody, first, second), total = usage(store, "suite")
    assert (nobody.name, nobody.cpu_hours, nobody.gpu_hours) == ("", 1.0, 0.0)
    assert (first.name, first.attempts, first.gpu_hours, first.cpu_hours) == ("a", 2, 3.0, 6.0)
    assert (first.peak_memory_bytes, first.waited_hours) == (2**31, 1.0)
    assert first.states == {"node_failure": 1, "succeeded": 1}
    assert (second.name, second.attempts, second.gpu_hours) == ("b", 3, 3.5)
    assert (total.attempts, total.gpu_hours, total.cpu_hours) == (4, 3.5, 8.0)

    users, again = usage(store, "user")
    assert [(usage_row.name, usage_row.attempts) for usage_row in users] == [("", 1), ("ann", 3)]
    assert again == total
    each, _ = usage(store, "attempt")
    assert {usage_row.name for usage_row in each} == {f"{ids[0]}/1", f"{ids[0]}/2", f"{ids[1]}/1", f"{ids[2]}/1"}
    shown = table([first], total, "suite")
    assert dict(zip(shown.header, shown.texts[0], strict=True)) == {
        "suite": "a", "attempts": "2", "GPU-hours": "3.00", "CPU-hours": "6.00", "peak memory": "2.0 GiB",
        "hours waited": "1.00", "ended": "1 node_failure, 1 succeeded",
    }  # fmt: skip


def test_one_that_runs_counts_until_now(store: Store, tmp_path: Path) -> None:
    make_directory(tmp_path, make_trial(), attempts=[attempt("running", 0, None, cpus=1)])
    rebuild(store, tmp_path)
    assert usage(store, "suite")[1].cpu_hours > 24
    assert usage(store, "suite")[1].cpu_hours == pytest.approx(usage(store, "user")[1].cpu_hours, rel=1e-3)
