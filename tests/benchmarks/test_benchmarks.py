"""The benchmarks' command: what it prints, and that its ratios are ratios."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.measure import compare

ROOT = Path(__file__).parents[2]


def test_a_ratio_is_the_median_of_pairs_and_the_warm_up_does_not_count() -> None:
    waits = {"ours": iter([0.2, 0.02, 0.02, 0.02]), "peer": iter([0.0, 0.01, 0.01, 0.01])}
    measured = compare(
        "a", lambda: time.sleep(next(waits["ours"])), "b", lambda: time.sleep(next(waits["peer"])), limit=3.0, rounds=3
    )
    assert 1.2 < measured.ratio < 3.0
    assert measured.detail["ours_ms"] >= 20
    assert next(waits["ours"], None) is None


def test_json_has_the_documented_keys() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "startup", "--json"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = json.loads(done.stdout)
    assert [set(one) for one in found] == [{"name", "against", "ratio", "limit", "detail"}]
    assert found[0]["ratio"] == pytest.approx(found[0]["detail"]["ours_ms"] / found[0]["detail"]["peer_ms"], rel=0.5)


def test_an_unknown_benchmark_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "unknown benchmark nothing" in done.stderr
