"""Peak memory of training with DropKey and dropout over that of the same without.

``python -m benchmarks.training.memory SPEC`` prints the peak, in bytes, of a process that trains ViT-S/16.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Measurement

BATCH, STEPS, LIMIT = 16, 3, 1.05
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Has glibc return what is freed. By itself it keeps some: peaks were a tenth to a fifth higher, not all alike."""
SPECS = ("dropkey", "dropout")
FIELDS = {"task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small"}


def memory() -> list[Measurement]:
    """One process each."""
    peer = peak("none")
    measured = []
    for spec in SPECS:
        ours = peak(spec)
        name = f"peak memory while ViT-S/16 is trained, {BATCH} images, {spec}"
        measured.append(
            Measurement(name, "the same without", round(ours / peer, 3), LIMIT, ours >> 20, peer >> 20, "MiB")
        )
    return measured


def peak(spec: str) -> int:
    """Of a process that trains with it."""
    command = [sys.executable, "-m", "benchmarks.training.memory", spec]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **GIVES_BACK})
    return int(json.loads(done.stdout))


def main(spec: str) -> None:
    """Train for some steps, and print this process's peak."""
    from benchmarks.training.engine import Bare
    from benchmarks.training.steps import made
    from harness.settings import Settings

    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        Bare(made(FIELDS, spec, {"batch_size": BATCH, "image_size": 224}, settings), STEPS).run()
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


if __name__ == "__main__":
    main(sys.argv[1])
