"""Linear probe of a pre-trained image model: logistic regression on the features of its initial weights."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from dropbench.harness.errors import count_of
from dropbench.harness.optimization.layers import head_parameters
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS, Split
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.classifier import ACCURACY
from dropbench.tasks.floors.floor import Floor
from dropbench.tasks.images.image_classification import ImageClassification
from dropbench.tasks.weights import weights_label

PROBE_RULES = 2
"""Part of the key of the cache. Raise it when the probe changes."""
INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates for `LogisticRegression.C`; the best one on dev is scored on test."""
MAX_IMAGES = 50_000
"""Training images above which there is no probe: it would take hours."""
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


def probe_floors(trial: Trial, settings: Settings) -> list[Floor]:
    """Return the linear probe of a trial's initial weights, on standardized features; [] for more than `MAX_IMAGES`.

    The images are those of evaluation: of the recipe's size, not augmented.

    Raises:
        InputError: the data or the weights are missing or have changed, or the weights do not fit.
    """
    task: Any = TASKS.get(trial.task)(trial, settings)
    task.setup()
    if task.size("train") > MAX_IMAGES or trial.weights is None:
        return []
    name = weights_label(trial)
    print(f"linear probe of {name}: features of {count_of(sum(map(task.size, SPLITS)), 'image')}", file=sys.stderr)
    model = task.build_model().eval().to("cuda" if settings.uses_cuda() else "cpu")
    features = {split: _features(task, model, split) for split in SPLITS}
    labels = {split: task.labels[split].numpy() for split in SPLITS}
    fitted = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=1000)).fit(features["train"], labels["train"])
        for c in INVERSE_PENALTIES
    ]
    best = max(fitted, key=lambda probe: float(probe.score(features["dev"], labels["dev"])))
    accuracy = 100.0 * float(best.score(features["test"], labels["test"]))
    return [Floor(f"linear probe of {name}, {task.recipe.image_size} px", ACCURACY.name, accuracy)]


def _features(task: ImageClassification, model: nn.Module, split: Split) -> NDArray[np.float32]:
    """Return the features (N, D) of a split without augmentation."""
    device, size = next(model.parameters()).device, task.recipe.batch_size
    batches = [range(start, min(start + size, task.size(split))) for start in range(0, task.size(split), size)]
    rows = (frozen_features(model, task.plain_images(split, batch).to(device), len(task.classes)) for batch in batches)
    return np.concatenate([features.cpu().numpy() for features in rows])


@torch.no_grad()
def frozen_features(model: nn.Module, images: Tensor, classes: int) -> Tensor:
    """Return the input (B, D) of the layer in the head that scores the classes of images; of several, all in order.

    Layers that score each token have an input of another shape, and do not count.
    """
    inputs: list[Tensor] = []

    def keep(layer: nn.Module, arguments: Sequence[Tensor]) -> None:
        if arguments[0].ndim == 2:
            inputs.append(arguments[0].float())

    head = head_parameters(model)
    hooks = [
        layer.register_forward_pre_hook(keep)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == classes and (f"{name}.weight" in head or not head)
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(inputs, dim=1)
