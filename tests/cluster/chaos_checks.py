"""The suite of `tests.cluster.chaos`, its undisturbed results, and the comparison of trials with them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.cluster.conftest import ClusterPlace
from tests.jobs.workplace import HEAD, Workplace

SUITE = f"""{HEAD}
rows: [{{label: none, trial: {{regularizer: none}}}}]
presets: {{mini: {{seeds: 200, overrides: {{steps: 60, model.dropout: 0.0}}}}}}
"""


def undisturbed(folder: Path, trials: int) -> dict[str, Any]:
    """Train the suite on this machine without faults; return the metrics of all trials by id."""
    place = Workplace(folder)
    (folder / "many.yaml").write_text(SUITE)
    place.ok("run", "many.yaml", f"--seeds={trials}", fresh=True)
    return {directory.id: (directory.result() or {})["metrics"] for directory in place.directories()}


def problems(place: ClusterPlace, expected: dict[str, Any]) -> list[str]:
    """Return one line per trial that is lost, without a result, run twice, or different from the undisturbed one."""
    directories = {directory.id: directory for directory in place.directories()}
    lines = [f"{id}: lost" for id in expected.keys() - directories.keys()]
    for id, directory in directories.items():
        result, attempts = directory.result(), directory.attempts()
        states = Counter(attempt["state"] for attempt in attempts)
        if result is None:
            lines.append(f"{id}: no result, {dict(states)}")
            continue
        if states["succeeded"] != 1 or attempts[-1]["state"] != "succeeded" or states["running"]:
            lines.append(f"{id}: {[attempt['state'] for attempt in attempts]}")
        exact = all(attempt["micro_batch_splits"] == 1 for attempt in attempts)
        for name, value in expected[id].items():
            actual = result["metrics"][name]
            if actual != value and (exact or abs(actual - value) > 1e-5 * abs(value)):
                lines.append(f"{id}: {name} {actual}, undisturbed {value}")
    return lines
