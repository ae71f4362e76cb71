"""The benchmarks' command: what it prints, and that its ratios are ratios."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.cluster import nodes, simulation
from benchmarks.database import tables
from benchmarks.database.queue import at_scale
from benchmarks.measure import compare
from benchmarks.quickstart import split_seconds
from benchmarks.training.images import clouds
from dropbench.db.store.store import open_store
from tests import forkserver
from tests.paths import ROOT


def test_a_ratio_is_the_median_of_pairs_and_the_warm_up_does_not_count() -> None:
    """On a clock of its own, which no other process delays."""
    clock = 0.0
    waits = {"ours": iter([2.0, 0.02, 0.03, 0.1]), "peer": iter([0.0, 0.01, 0.03, 0.01])}

    def wait(side: str) -> None:
        nonlocal clock
        clock += next(waits[side])

    sides = (partial(wait, side) for side in waits)
    measured = compare("a", next(sides), "b", next(sides), limit=3.0, rounds=3, clock=lambda: clock)
    assert measured.ratio == 2.0
    assert (measured.ours, measured.peer) == (30.0, 10.0)
    assert next(waits["ours"], None) is None


@pytest.mark.slow
def test_json_has_the_documented_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_BENCHMARK_TRIALS", "10")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "queue", "--json"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = json.loads(done.stdout)
    assert found[0]["name"] == "enqueueing 10 trials"
    for one in found:
        assert set(one) == {"name", "against", "ratio", "limit", "ours", "peer", "unit", "detail"}
        assert one["ratio"] == pytest.approx(one["ours"] / one["peer"], rel=0.5)


def test_the_photos_are_as_large_as_imagenets(tmp_path: Path) -> None:
    content = BytesIO()
    Image.fromarray(clouds(np.random.RandomState(0))).save(content, "JPEG", quality=95)
    assert 60_000 < len(content.getvalue()) < 160_000


@pytest.mark.slow
def test_a_small_campaign(tmp_path: Path) -> None:
    found = at_scale(tmp_path, 203)
    assert [one.name.split(",")[0] for one in found] == [
        "enqueueing 203 trials", "status", "status", "results --group-by regularizer", "dropbench status",
        "dropbench results --group-by regularizer",
    ]  # fmt: skip
    assert "203 of them active" in found[2].name
    assert "2,030 metric rows" in found[3].name
    for one in found:
        assert one.limit == 1
        assert one.ratio == pytest.approx(one.ours / one.peer, abs=0.01)


@pytest.mark.slow
def test_a_simulated_cluster_runs_a_campaign_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fifty times the faults; few enough places that not all jobs can be submitted at once."""
    monkeypatch.setattr(nodes, "FAULTS", {name: 50 * often for name, often in nodes.FAULTS.items()})
    monkeypatch.setattr(nodes, "JOBS", 5)
    report = simulation.simulate(tmp_path, 203, 3)
    assert report.states.keys() == {"succeeded", "failed"}
    assert sum(report.states.values()) == 203
    assert report.states["failed"] == report.faults["failed"] > 0
    assert report.attempts == 203 + sum(report.faults.values()) - report.faults["failed"]
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == report.states["succeeded"]
    assert report.calls["sbatch"] > 203 / simulation.TRIALS_PER_JOB / nodes.JOBS
    assert {"collect", "submit", "status", "enqueue", "nodes"} == set(report.seconds)
    first, *times = json.loads(json.dumps([asdict(row) for row in simulation.measurements(report, 203, 3)]))
    assert first["ours"] == report.max_calls
    assert first["detail"]["calls"] == report.calls
    assert [row["name"].split(",")[0] for row in times] == [*simulation.LIMITS_S]


@pytest.mark.slow
def test_an_unknown_benchmark_is_refused() -> None:
    done = forkserver.run(["nothing"], cwd=ROOT, env=os.environ, module="benchmarks")
    assert done.returncode == 2
    assert "unknown benchmark nothing" in done.stderr


@pytest.mark.slow
def test_tables_are_made_of_what_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 3)
    monkeypatch.setattr(tables, "SEEDS", 2)
    found = {one.name.split(";")[0]: one for one in tables.at_scale(tmp_path, 100)}
    assert {"rank", "report quickstart (28 trials)", "report quickstart (28 trials) --format html"} <= found.keys()
    assert all(one.ratio > 0 for one in found.values())
    assert 10**5 < found["that page of quickstart"].ours < tables.PAGE_BYTES
    with open_store(f"sqlite:///{tmp_path}/tables.db") as store:
        assert store.counts()["succeeded"] == sum(store.counts().values()) == 100


def test_the_parts_of_make_bench_begin_with_what_it_prints() -> None:
    printed = """
        1 Creating .venv with Python 3.11.7
        2 Installing requirements.lock (longer for a CUDA build of torch)
        21 Importing the libraries for the first time
        25 .venv/bin/dropbench run quickstart
        30 28 trials, 2 workers
        60 [27/28] 0123456789ab none, digits-small, seed 0: succeeded, test/accuracy 90.00
        62 [28/28] 0123456789ac none, digits-small, seed 1: succeeded, test/accuracy 90.00
        63 quickstart: Four regularizers
        64
    """
    rows = [row.strip().partition(" ") for row in printed.strip().splitlines()]
    lines = [(float(moment), line) for moment, _, line in rows]
    assert split_seconds(lines, 0.0) == {"installation": 21.0, "first imports": 4.0, "training": 37.0, "table": 2.0}
