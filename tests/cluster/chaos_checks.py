"""The suite that chaos strikes, its undisturbed results, and how the trials are compared with them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.cluster.conftest import ClusterPlace
from tests.jobs.workplace import Workplace

SUITE = """
title: Many trials
source: chaos
metric: accuracy
trial: {task: tiny, data: tiny, model: tiny}
columns: [{label: Tiny}]
rows:
  - {label: none, trial: {regularizer: none}}
presets:
  mini: {seeds: 200, overrides: {steps: 60, model.dropout: 0.0}}
"""


def undisturbed(folder: Path, trials: int) -> dict[str, Any]:
    """The metrics of all trials, by id."""
    place = Workplace(folder)
    (folder / "many.yaml").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "run", "many.yaml", f"--seeds={trials}"],
        cwd=folder,
        env=place.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {one.id: (one.result() or {})["metrics"] for one in place.directories()}


def problems(place: ClusterPlace, expected: dict[str, Any]) -> list[str]:
    """What is not as it should be, one line each."""
    found = []
    there = {one.id: one for one in place.directories()}
    found += [f"{id}: lost" for id in expected.keys() - there.keys()]
    for id, directory in there.items():
        result, attempts = directory.result(), directory.attempts()
        states = Counter(attempt["state"] for attempt in attempts)
        if result is None:
            found.append(f"{id}: no result, {dict(states)}")
            continue
        if states["succeeded"] != 1 or attempts[-1]["state"] != "succeeded" or states["running"]:
            found.append(f"{id}: {[attempt['state'] for attempt in attempts]}")
        exact = all(attempt["micro_batch_splits"] == 1 for attempt in attempts)
        for name, value in expected[id].items():
            got = result["metrics"][name]
            if got != value and (exact or abs(got - value) > 1e-5 * abs(value)):
                found.append(f"{id}: {name} {got}, undisturbed {value}")
    return found
