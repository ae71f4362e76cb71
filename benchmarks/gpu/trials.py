"""Trials per hour on one GPU: four processes that share it, against one.

``python -m benchmarks.gpu.trials`` prints the rows as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.measure import Measurement

ROOT = Path(__file__).parents[2]
TRIALS_AT_A_TIME = 4
SEEDS = 6
LIMIT = 0.5


def gpu_trials() -> list[Measurement]:
    """Run the suite quickstart with one and with several trials at a time; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-trials: skipped: torch finds no GPU", file=sys.stderr)
        return []
    seconds_of(TRIALS_AT_A_TIME, seeds=1)  # compiles the kernels, which Triton keeps on the disk
    together, alone = (seconds_of(count, SEEDS) for count in (TRIALS_AT_A_TIME, 1))
    name = f"quickstart, {SEEDS} seeds, {TRIALS_AT_A_TIME} trials at a time on {torch.cuda.get_device_name()}"
    return [
        Measurement(name, "1 trial at a time", together / alone, LIMIT, round(together, 1), round(alone, 1), "s")
    ]  # fmt: skip


def seconds_of(trials_at_a_time: int, seeds: int) -> float:
    """Return the seconds of a run, from the command to the table."""
    with TemporaryDirectory() as folder:
        options = ["--seeds", str(seeds), "--device", "cuda", "--parallel", str(trials_at_a_time)]
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"DROPBENCH_DB": f"sqlite:///{Path(folder, 'runs.db')}", "PYTHONPATH": modules}
        command = [sys.executable, "-m", "dropbench", "run", "quickstart", *options]
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=True)
        return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps([asdict(measured) for measured in gpu_trials()]))
