"""A training step of ViTs, whose last layer computes only the class token, against one that computes all tokens."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.measure import Measurement, compare
from benchmarks.training.engine import Bare
from benchmarks.training.steps import made
from harness.settings import Settings

LIMIT, ROUNDS, SPEC = 1.0, 10, "dropkey"
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "10 steps of ViT on CIFAR": (
        {"task": "image-classification", "data": "cifar100-synthetic", "model": "vit-cifar"}, {}, 10,
    ),
    "10 steps of T2T-ViT on CIFAR": (
        {"task": "image-classification", "data": "cifar100-synthetic", "model": "t2t-vit-cifar"}, {}, 10,
    ),
    "a step of ViT-S at 224 px": (
        {"task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small"},
        {"batch_size": 8, "image_size": 224}, 1,
    ),
}  # fmt: skip
"""Name → the fields of a trial, its overrides, and the steps of a call."""


def class_token() -> list[Measurement]:
    """Measure in turns; the peer is the same model with a hook at its last layer, which may read all tokens."""
    found = []
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        for name, (fields, overrides, steps) in MODELS.items():
            ours, whole = (Bare(made(fields, SPEC, overrides, settings), steps) for _ in range(2))
            blocks: Any = whole.model.blocks
            blocks[-1].register_forward_hook(lambda *_: None)
            detail = {"threads": torch.get_num_threads()}
            found.append(
                compare(f"{name}, {SPEC}", ours.run, "all tokens", whole.run, limit=LIMIT, rounds=ROUNDS, detail=detail)
            )
    return found
