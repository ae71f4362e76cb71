"""Trials per hour on one GPU: four that share it, against one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.measure import Measurement

ROOT = Path(__file__).parents[2]
TRIALS = 4
LIMIT = 0.5
CASES = {
    "vit-digits, 1,000 steps": ("digits", "vit-digits", ("steps=1000", "evaluate_every=250")),
    "ViT-S, 200 steps of 64 images of 224 px, bf16": (
        "imagenet-synthetic", "vit-small", ("steps=200", "evaluate_every=100", "amp=bf16"),
    ),
}  # fmt: skip
"""What is trained → data, model and recipe."""


def gpu_trials() -> list[Measurement]:
    """Run four trials side by side, and one after the other, from the command to the table; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-trials: skipped: torch finds no GPU", file=sys.stderr)
        return []
    rows = []
    for title, (data, model, recipe) in CASES.items():
        compiling = [option if "steps" not in option else "steps=5" for option in recipe if "every" not in option]
        seconds_of(data, model, compiling, parallel=1, seeds=1)  # compiles the kernels, which Triton keeps on the disk
        together, alone = (seconds_of(data, model, recipe, parallel=count, seeds=TRIALS) for count in (TRIALS, 1))
        sides = round(together / alone, 3), LIMIT, round(together, 1), round(alone, 1), "s"
        rows.append(Measurement(f"{TRIALS} trials of {title}, side by side", "one after the other", *sides))
    return rows


def seconds_of(data: str, model: str, recipe: Sequence[str], *, parallel: int, seeds: int) -> float:
    """Return the seconds of a run, from the command to the table."""
    with TemporaryDirectory() as folder:
        fields = [
            "--task",
            "image-classification",
            "--data",
            data,
            "--model",
            model,
            "--regularizer",
            "dropkey:ratio=0.3",
        ]
        options = ["--preset", "mini", "--seeds", str(seeds), "--device", "cuda"]
        changed = [part for option in recipe for part in ("--set", option)]
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"DROPBENCH_DB": f"sqlite:///{Path(folder, 'runs.db')}", "PYTHONPATH": modules}
        command = [sys.executable, "-m", "dropbench", "run", *fields, *options, *changed, "--parallel", str(parallel)]
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=True)
        return time.perf_counter() - start
