"""Code, backends, precision, processes and random generators of a run, for ``environment.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.modules.conv import _ConvNd

from dropbench.harness.attention.backends import used_backends
from dropbench.harness.settings import Settings
from dropbench.harness.training.environment import environment
from dropbench.harness.training.train_state import History
from dropbench.harness.trials.recipe_diff import recipe_diff
from dropbench.harness.trials.task import Task


def run_environment(
    task: Task, settings: Settings, model: nn.Module, accelerator: Accelerator, history: History, sites: Sequence[str]
) -> dict[str, Any]:
    """Return the content of ``environment.json``: `environment`, and what a run computes with.

    The backends that were used, and whether a GPU's generator was, are known after the first steps.
    """
    device = accelerator.device
    return {
        **environment(device),
        "backend": settings.backend,
        "backends": used_backends(),
        "compile": settings.compile,
        "processes": accelerator.num_processes,
        "tf32": task.recipe.amp == "no" and uses_tf32(model, device),
        "float32_for_fp16": task.recipe.amp == "fp16" and accelerator.scaler is None,
        "draws_on_device": history.draws_on_device,
        "codes": history.codes,
        "sites": [*sites],
        "notes": task.notes,
        "deviations": recipe_diff(type(task), task.trial),
    }


def uses_tf32(model: nn.Module, device: torch.device) -> bool:
    """Return whether products of float32 numbers are rounded to fewer bits: of matrices, or of a model's convolutions.

    torch rounds those of convolutions on GPUs by default.
    """
    if torch.get_float32_matmul_precision() != "highest":
        return True
    has_convolutions = any(isinstance(module, _ConvNd) for module in model.modules())
    cudnn: Any = torch.backends.cudnn
    return device.type == "cuda" and has_convolutions and cudnn.conv.fp32_precision == "tf32"
