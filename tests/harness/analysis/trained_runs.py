"""Run directories of untrained trials: initial weights, scaled so that attention is far from uniform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from dropbench.harness.analysis.trained import Trained
from dropbench.harness.models.regularize import bind
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest

_DETR = {
    "image_size": 64, "model.embed_dim": 16, "model.num_heads": 2, "model.feedforward": 32, "model.num_queries": 6,
}  # fmt: skip
SMALL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "digits": ("image-classification", "vit-digits", {"model.depth": 2, "model.embed_dim": 16, "batch_size": 64}),
    "trec-synthetic": (
        "text-classification",
        "text-transformer",
        {"model.layers": 2, "model.dim": 16, "model.heads": 2, "batch_size": 32},
    ),
    "coco-synthetic": ("object-detection", "detr", _DETR),
    "hico-det-synthetic": ("interaction-detection", "qpic", _DETR),
    "humbi-synthetic": (
        "mesh-recovery",
        "metro",
        {
            "image_size": 64, "batch_size": 32, "model.hidden": "32,16", "model.between": "16", "model.layers": 1,
            "model.num_heads": 2, "model.feedforward": 32,
        },
    ),
}  # fmt: skip
"""Task, model and hyper-parameters of a small trial on each data set."""


def make_trial(data: str = "digits", regularizer: str = "dropkey", **changes: Any) -> Trial:
    """Return a small trial. `changes` are fields of `TrialRequest`."""
    task, model, small = SMALL[data]
    params = {} if regularizer in ("none", "learned-dropout") else {"ratio": 0.3}
    changes["overrides"] = {**small, **changes.get("overrides", {})}
    request = TrialRequest(
        **{"task": task, "data": data, "model": model, "regularizer": regularizer, "params": params, **changes}
    )
    return TASKS.get(task).trial_for(request, Settings())


def make_run(runs: Path, trial: Trial) -> RunDirectory:
    """Create a run directory with weights and a result, as training does."""
    directory = RunDirectory.create(runs, trial)
    task = TASKS.get(trial.task)(trial, Settings())
    task.setup()
    torch.manual_seed(0)
    model = task.build_model()
    bind(model, trial.regularizer.build(), schedule=trial.schedule)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("qkv", "in_proj", "query.", "key.")) and "regularization" not in name:
                weight.mul_(20)
    checkpoint.save_weights(directory.path / "checkpoint", 7, model.state_dict())
    batches = [task.batch("test", part) for part in task.evaluation_batches("test", task.recipe.batch_size)]
    with torch.no_grad():
        scores = task.evaluate(model.eval(), "test", batches)
    metrics = {f"test/{name}": value for name, value in scores.items()}
    directory.write_result({"format": 1, "metrics": metrics, "selected_step": 7, "steps": 9})
    return directory


def train_small(runs: Path, data: str = "digits", regularizer: str = "dropkey", **changes: Any) -> Trained:
    """Return a small trial with weights and a result, on one thread of the CPU. See `make_trial`."""
    return Trained(make_run(runs, make_trial(data, regularizer, **changes)), Settings(device="cpu", threads=1))
