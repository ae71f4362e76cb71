"""`dropbench run` from the command to its table: the share of its time that is training steps, and an earlier commit.

`CAMPAIGN_BASELINE` is a checkout of the commit to compare with, after its own `make setup`. Without it only the shares
are measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.measure import Measurement

ROOT = Path(__file__).parents[1]
OLD_NAMES = {"quickstart/full": "quickstart"}
"""Names of suites before they were renamed."""
MAX_OUTSIDE = 0.15
"""Maximum share of the cores' time outside training steps."""


class Campaign(NamedTuple):
    """A suite with options, and the maximum ratio of its wall time to the baseline's."""

    suite: str
    options: tuple[str, ...]
    limit: float


CAMPAIGNS = (
    Campaign("quickstart/full", (), 0.6),
    Campaign("dropattention/table3", ("--preset", "mini", "--data", "trec", "--seeds", "3"), 0.7),
)


def campaign() -> list[Measurement]:
    """Each campaign once, in a new folder, with one worker per core."""
    found = []
    baseline = os.environ.get("CAMPAIGN_BASELINE")
    cores = len(os.sched_getaffinity(0))
    for suite, options, limit in CAMPAIGNS:
        wall, steps = measure(ROOT, suite, options)
        total = wall * cores
        found.append(
            Measurement(
                f"{suite}, outside training steps", "wall time × cores", round(1 - steps / total, 3), MAX_OUTSIDE,
                round(total - steps, 1), round(total, 1), "s", {"cores": cores, "wall_s": round(wall, 1)},
            )
        )  # fmt: skip
        if baseline:
            peer, _ = measure(Path(baseline), OLD_NAMES.get(suite, suite), options)
            found.append(
                Measurement(
                    suite, f"the same in {Path(baseline).name}", round(wall / peer, 3), limit,
                    round(wall, 1), round(peer, 1), "s",
                )
            )  # fmt: skip
    return found


def measure(root: Path, suite: str, options: Iterable[str]) -> tuple[float, float]:
    """Run a suite by the command of a checkout; return its wall time and the sum of its training steps in seconds."""
    with TemporaryDirectory() as folder:
        own = {name: value for name, value in os.environ.items() if not name.startswith("DROPBENCH_")}
        data = Path(os.environ.get("DROPBENCH_DATA", "data")).absolute()
        environment = {**own, "DROPBENCH_DATA": str(data)}
        command = [str(root / ".venv/bin/dropbench"), "run", suite, *options]
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - start
        files = Path(folder).glob("runs/*/events.jsonl")
        return wall, sum(step_seconds(map(json.loads, file.read_text().splitlines())) for file in files)


def step_seconds(events: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds of a trial's training steps.

    Those before a train event are measured, since the event before it. Some of the steps before an evaluation have no
    train event of their own; they are taken to be as fast.
    """
    seconds, measured, others, before = 0.0, 0, 0, None
    for event in events:
        if before is not None:
            steps = event.get("step", 0) - before.get("step", 0)
            if event["event"] == "train":
                seconds, measured = seconds + event["time"] - before["time"], measured + steps
            else:
                others += steps
        before = event
    return seconds * (1 + others / max(1, measured))
