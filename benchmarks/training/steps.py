"""A training step with a regularizer against the same step without: what regularisation costs, end to end."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.measure import Measurement, compare
from benchmarks.training.engine import Bare
from harness.settings import Settings
from harness.trials.task import TASKS, Task
from harness.trials.trial import TrialRequest

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
    """One optimizer step of each in turns, on the same batches."""
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        found = []
        for name, (fields, spec, overrides) in MODELS.items():
            ours, plain = (Bare(made(fields, one, overrides, settings), steps=1) for one in (spec, "none"))
            detail = {"threads": torch.get_num_threads(), "batch": ours.task.recipe.batch_size}
            found.append(
                compare(
                    f"a step of {name}, {spec}", ours.run, "the same without", plain.run, limit=LIMIT, rounds=ROUNDS,
                    detail=detail,
                )
            )  # fmt: skip
    return found


def made(fields: dict[str, Any], spec: str, overrides: dict[str, Any], settings: Settings) -> Task:
    """The task of a trial with that regularizer."""
    from harness.regularizers.spec import parse_spec

    parsed = parse_spec(spec)
    request = TrialRequest(
        **fields, regularizer=parsed.name, params={"ratio": 0.3, **parsed.params} if spec != "none" else {},
        overrides=overrides,
    )  # fmt: skip
    kind = TASKS.get(request.task)
    task: Task = kind(kind.trial_for(request, settings), settings)
    task.setup()
    return task
