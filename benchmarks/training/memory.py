"""Measure the peak memory of training with DropKey and dropout against the same without.

``python -m benchmarks.training.memory MODEL SPEC BACKEND`` prints the peak of one process, in bytes.

The peak is resident memory, because torch's counters know nothing of the buffers of C kernels. The memory before the
first step is subtracted: that of libraries and parameters would hide a difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement

STEPS, LIMIT = 2, 1.02
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Makes glibc return freed memory. By default it keeps some, which raised peaks by 10 to 20 %, unequally."""
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ViT-S/16 at 224 px, 16 images": (
        {"task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small"},
        {"batch_size": 16, "image_size": 224},
    ),
    "language model, 2 texts of 1,024 tokens": (
        {"task": "language-modelling", "data": "wikitext-2-synthetic", "model": "learned-dropout-lm-baseline"},
        {"batch_size": 2, "context": 1024},
    ),
    "language model, 64 texts of 40 tokens": (
        {"task": "language-modelling", "data": "wikitext-2-synthetic", "model": "learned-dropout-lm-baseline"},
        {"batch_size": 64, "context": 40},
    ),
}
"""Fields of a trial, and overrides of its recipe."""
VARIANTS = {"dropkey": ("dropkey", "auto"), "dropout": ("dropout", "auto"), "dropkey without C": ("dropkey", "eager")}
"""Regularizers and backends by name."""


def memory() -> list[Measurement]:
    """Measure all variants on all models, one process each."""
    return [each for model in MODELS for each in measured(model)]


def measured(model: str) -> Iterator[Measurement]:
    """Measure all variants on a model."""
    peer = peak(model, "none", "auto")
    for name, variant in VARIANTS.items():
        ours = peak(model, *variant)
        ratio = round(ours / peer, 3)
        title = f"peak memory of a step of {model}, {name}"
        limit = LIMIT if "eager" not in variant else None  # which stores masks
        yield Measurement(title, "the same without", ratio, limit, ours >> 20, peer >> 20, "MiB")


def peak(model: str, spec: str, backend: str) -> int:
    """Return the bytes that training takes in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.training.memory", model, spec, backend]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **GIVES_BACK})
    return int(json.loads(done.stdout.splitlines()[-1]))


def main(model: str, spec: str, backend_name: str) -> None:
    """Train for some steps, and print what they took."""
    from benchmarks.training.engine import Bare, temporary_settings
    from benchmarks.training.steps import build_task
    from dropbench.harness.attention.backends import backend

    fields, overrides = MODELS[model]
    with temporary_settings() as settings, backend(backend_name):
        training = Bare(build_task(fields, spec, overrides, settings), STEPS)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak so far, such as of reading data
        before = resident_peak()
        training.run()
    print(json.dumps(resident_peak() - before))


def resident_peak() -> int:
    """Return the largest resident memory of this process since its peak was reset, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
