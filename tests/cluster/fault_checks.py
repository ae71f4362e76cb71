"""Checks that the tests of faults share."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from tests.cluster.conftest import ClusterPlace

Metrics = dict[str, dict[str, Any]]


def check(place: ClusterPlace, directory: RunDirectory, undisturbed: Metrics, *states: str) -> list[dict[str, Any]]:
    """Assert that a trial ended once, with the undisturbed result, by attempts that ended in these states."""
    assert (directory.result() or {})["metrics"] == undisturbed[directory.id]
    attempts = directory.attempts()
    assert [attempt["state"] for attempt in attempts] == list(states)
    ends = [event for event in directory.events() if event["event"] == "end"]
    assert len(ends) == 1
    rows = place.call("results", "--json").stdout
    assert '"state": "succeeded"' in rows
    return attempts


def check_close(directory: RunDirectory, undisturbed: Metrics) -> None:
    """Assert that a trial ended once, with the metrics of whole micro-batches in one process but for rounding."""
    metrics = (directory.result() or {})["metrics"]
    assert metrics == pytest.approx(undisturbed[directory.id], rel=1e-5)
    assert len([event for event in directory.events() if event["event"] == "end"]) == 1


def worker(directory: RunDirectory) -> int:
    """Return the process that trains."""
    return int(directory.attempts()[-1]["pid"])


def job_of(directory: RunDirectory) -> str:
    return str(directory.attempts()[-1]["job_id"])


def minutes_left(directory: RunDirectory) -> int:
    """Return the shortest time limit in whole minutes that leaves a job half a minute from now."""
    started = datetime.fromisoformat(directory.attempts()[-1]["started_at"])
    return math.ceil(((datetime.now(UTC) - started).total_seconds() + 30) / 60)


def reason(place: ClusterPlace) -> str:
    """Return the reason of the state of the only trial."""
    from dropbench.db.store.store import open_store

    with open_store(place.database) as store:
        (row,) = store.states().values()
    return row.reason or ""
