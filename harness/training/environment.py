"""The environment of a run, for ``environment.json``: versions, device, variables, backends, precision, processes."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from dropbench.harness.attention.backends import used_backends
from dropbench.harness.settings import Settings
from dropbench.harness.trials.recipe_diff import recipe_diff
from dropbench.harness.trials.task import Task
from dropbench.harness.variables import recorded_variables

if TYPE_CHECKING:
    from accelerate import Accelerator

    from dropbench.harness.training.train_state import History

LIBRARIES = ("dropbench", "torch", "torchvision", "timm", "transformers", "accelerate", "mmdet", "fairseq", "numpy")


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
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trained_parameters": sum(each.numel() for each in model.parameters() if each.requires_grad),
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


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions of Python and the libraries, the machine, the device, threads and variables."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "libraries": {name: installed for name in LIBRARIES if (installed := installed_version(name))},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "variables": recorded_variables(),
        "commit": commit(),
    }


@cache
def commit() -> str | None:
    """Return the commit of the code, followed by "-dirty" if files differ; None unless it runs from a repository."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # a repository that only contains an installation is another project's
        return None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return None


@cache  # importlib reads and parses a file at each call
def installed_version(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """Return the name of this machine's processor."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
