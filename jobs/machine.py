"""What this machine, or the cluster, gives a process to work with; found without loading torch."""

from __future__ import annotations

import os
from pathlib import Path


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        return [name for name in names if name and not name.startswith("-")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def cores(threads: int) -> int:
    """The CPU cores of the whole job, of which each process has so many; 0: all that there are."""
    return (threads or len(os.sched_getaffinity(0))) * _number("SLURM_NTASKS")


def gpus() -> int:
    """The GPUs of the whole job."""
    return len(visible_devices()) * _number("SLURM_JOB_NUM_NODES")


def node() -> str | None:
    """SLURM's name of this node."""
    return os.environ.get("SLURMD_NODENAME")


def _number(variable: str) -> int:
    return int(os.environ.get(variable) or 1)
