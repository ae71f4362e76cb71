"""Training VOLO-D1 at 224 pixels by our engine against a plain loop over timm's model: the same weights and images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measure import Measurement, compare
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.trainer import Trainer
from harness.trials.optimization import build_optimizer, set_rate
from harness.trials.trial import TrialRequest
from tasks.images.image_classification import ImageClassification

BATCH, ROUNDS = 8, 5
LIMITS = {"none": 1 / 0.95, "dropkey": 1 / 0.9}
"""Images per second: 0.95 of the plain loop's without a regularizer, 0.9 with DropKey."""

VOLO_D1 = {"layers": "4,4,8,2", "embed_dim": 384, "num_heads": 12, "mlp_ratio": 3.0, "stem_dim": 64}


def volo() -> list[Measurement]:
    """Without a regularizer, and with DropKey at 0.3; the batch is in memory, so that no side reads images."""
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu")
        return [measured(regularizer, settings) for regularizer in LIMITS]


def measured(regularizer: str, settings: Settings) -> Measurement:
    """One step of each in turns, on a model of its own, with the same initial weights."""
    run = prepared(regularizer, settings)
    images, labels = run.task.batch("train", range(BATCH))
    model = timm.create_model("volo_d1_224", num_classes=len(run.task.classes))  # type: ignore[attr-defined]
    model.load_state_dict(run.raw_model.state_dict())
    losses: tuple[list[float], list[float]] = ([], [])

    def ours() -> None:
        set_rate(run.optimizer, run.rate())
        losses[0].append(float(run.step([(images, labels)])))
        run.state.step += 1

    found = compare(
        f"training VOLO-D1, {regularizer}, {BATCH} images of 224 pixels",
        ours,
        "a plain loop over timm's volo_d1_224, nothing dropped",
        plain_loop(model, run, images, labels, losses[1]),
        limit=round(LIMITS[regularizer], 3),
        rounds=ROUNDS,
        detail={"threads": torch.get_num_threads(), "dtype": "float32", "device": "cpu"},
    )
    found.detail.update(images_per_second_share=round(1 / found.ratio, 3), first_losses=[part[0] for part in losses])
    return found


def prepared(regularizer: str, settings: Settings) -> Trainer:
    """A run of our engine, with nothing random but the regularizer."""
    request = TrialRequest(
        task="image-classification",
        data="imagenet-synthetic",
        model="volo-d1",
        regularizer=regularizer,
        params={} if regularizer == "none" else {"ratio": 0.3},
        preset="mini",
        overrides={"batch_size": BATCH, "flip": False, **{f"model.{key}": value for key, value in VOLO_D1.items()}},
    )
    task = ImageClassification(ImageClassification.trial_for(request, settings), settings)
    task.setup()
    return Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, lambda: False)


def plain_loop(model: Any, run: Trainer, images: Tensor, labels: Tensor, losses: list[float]) -> Callable[[], None]:
    """A step as a training script has it, with the same optimizer, rates and label smoothing."""
    optimizer = build_optimizer(model, run.recipe)
    model.train()

    def step() -> None:
        set_rate(optimizer, run.rate())
        loss = cross_entropy(model(images), labels, label_smoothing=run.recipe.label_smoothing)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))

    return step
