"""The environment of a trial, for ``environment.json``: versions, device, threads and variables."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from dropbench.harness.variables import recorded_variables

LIBRARIES = ("dropbench", "torch", "torchvision", "timm", "transformers", "accelerate", "mmdet", "fairseq", "numpy")


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
