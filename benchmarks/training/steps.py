"""Measure a training step with a regularizer against the same step without one."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.measure import Measurement, compare
from benchmarks.training.engine import Bare, task_of, temporary_settings
from dropbench.harness.regularizers.spec import parse_spec
from dropbench.harness.settings import Settings

LIMIT, ROUNDS = 1.10, 10

MODELS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "T2T-ViT-14 at 224 px": (
        {"task": "image-classification", "data": "imagenet-synthetic", "model": "t2t-vit-14"},
        "dropkey", {"batch_size": 8, "image_size": 224},
    ),
    "text Transformer": (
        {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
        "dropattention-e:window=2", {},
    ),
    "WMT base": (
        {"task": "translation", "data": "wmt16-en-de-synthetic", "model": "transformer-wmt-en-de"},
        "dropattention-c:window=2", {},
    ),
}  # fmt: skip
"""Trials to time: fields, regularizer, and overrides of the recipe."""


def steps() -> list[Measurement]:
    """Measure one optimizer step of each alternately, on the same batches."""
    with temporary_settings() as settings:
        rows = []
        for title, (fields, spec, overrides) in MODELS.items():
            ours, plain = (Bare(build_task(fields, name, overrides, settings), steps=1) for name in (spec, "none"))
            detail = {"threads": torch.get_num_threads(), "batch": ours.task.recipe.batch_size}
            rows.append(
                compare(
                    f"a step of {title}, {spec}", ours.run, "the same without", plain.run, limit=LIMIT, rounds=ROUNDS,
                    detail=detail,
                )
            )  # fmt: skip
    return rows


def build_task(fields: dict[str, Any], spec: str, overrides: dict[str, Any], settings: Settings) -> Any:
    """Return the task of a trial with a regularizer, with its data."""
    parsed = parse_spec(spec)
    params = {"ratio": 0.3, **parsed.params} if spec != "none" else {}
    return task_of(settings, **fields, regularizer=parsed.name, params=params, overrides=overrides)
