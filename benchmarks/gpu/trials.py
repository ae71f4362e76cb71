"""Trials per hour on one GPU: four that share it, against one after the other."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.measure import Measurement

ROOT = Path(__file__).parents[2]
TRIALS = 4
LIMIT = 0.5
CASES = {
    "vit-digits, 400 steps": ("digits", "vit-digits", ("steps=400", "evaluate_every=400")),
    "ViT-S, 100 steps of 64 images of 224 px, bf16": (
        "imagenet-synthetic", "vit-small", ("steps=100", "evaluate_every=100", "amp=bf16"),
    ),
}  # fmt: skip
"""Title → data, model and recipe."""
NOTE = "Seconds from the start of the first trial to the end of the last one, as the database records them."


def gpu_trials() -> list[Measurement]:
    """Run four trials side by side, and one after the other; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-trials: skipped: torch finds no GPU", file=sys.stderr)
        return []
    return [of_model(title, *case) for title, case in CASES.items()]


def of_model(title: str, data: str, model: str, recipe: Sequence[str]) -> Measurement:
    """Measure one kind of trial, side by side first: they compile the kernels, which Triton keeps on the disk."""
    together, alone = (seconds_of(data, model, recipe, parallel) for parallel in (TRIALS, 1))
    sides = round(together / alone, 3), LIMIT, round(together, 1), round(alone, 1), "s"
    return Measurement(f"{TRIALS} trials of {title}, side by side", "one after the other", *sides)


def seconds_of(data: str, model: str, recipe: Sequence[str], parallel: int, device: str = "cuda") -> float:
    """Return the seconds from the start of the first trial to the end of the last one."""
    with TemporaryDirectory() as folder:
        fields = ["--task", "image-classification", "--data", data, "--model", model]
        options = ["--regularizer", "dropkey:ratio=0.3", "--preset", "mini", "--seeds", str(TRIALS), "--device", device]
        changed = [part for option in recipe for part in ("--set", option)]
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        database = Path(folder, "runs.db")
        environment = os.environ | {"DROPBENCH_DB": f"sqlite:///{database}", "PYTHONPATH": modules}
        command = [sys.executable, "-m", "dropbench", "run", *fields, *options, *changed, "--parallel", str(parallel)]
        subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=True)
        with closing(sqlite3.connect(database)) as connection:
            [(first, last)] = connection.execute("SELECT min(started_at), max(ended_at) FROM v_trials")
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
