"""Run directories of trials that nobody trained: a model's first weights, with attention that is far from even."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from harness import checkpoint
from harness.binding import bind
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import Trial, TrialRequest

SMALL = {
    "digits": {"model.depth": 2, "model.embed_dim": 16, "batch_size": 64},
    "trec-synthetic": {"model.layers": 2, "model.dim": 16, "model.heads": 2, "batch_size": 32},
}


def make_trial(data: str = "digits", regularizer: str = "dropkey", **changes: Any) -> Trial:
    """A small trial on images or texts; `params`, `schedule`, `align` and `overrides` as in a request."""
    task, model = (
        ("image-classification", "vit-digits") if data == "digits" else ("text-classification", "text-transformer")
    )
    params = {} if regularizer in ("none", "learned-dropout") else {"ratio": 0.3}
    changes["overrides"] = {**SMALL[data], **changes.get("overrides", {})}
    request = TrialRequest(
        **{"task": task, "data": data, "model": model, "regularizer": regularizer, "params": params, **changes}
    )
    return TASKS.get(task).trial_for(request, Settings())


def make_run(runs: Path, trial: Trial) -> RunDirectory:
    """A run directory with weights and a result, as training leaves it."""
    directory = RunDirectory.create(runs, trial)
    task = TASKS.get(trial.task)(trial, Settings())
    task.setup()
    torch.manual_seed(0)
    model = task.build_model()
    bind(model, trial.regularizer.build(), schedule=trial.schedule)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "qkv" in name and "regularization" not in name:
                weight.mul_(20)
    checkpoint.save_weights(directory.path / "checkpoint", 7, model.state_dict())
    batches = [task.batch("test", part) for part in task.evaluation_batches("test", task.recipe.batch_size)]
    with torch.no_grad():
        found = task.evaluate(model.eval(), "test", batches)
    metrics = {f"test/{name}": value for name, value in found.items()}
    directory.write_result({"format": 1, "metrics": metrics, "selected_step": 7, "steps": 9})
    return directory
