"""CPU cores and GPUs of this process and of its SLURM job, found without importing torch."""

from __future__ import annotations

import os
from pathlib import Path


def visible_devices() -> list[str]:
    """Return the GPUs that this process may use, as named in `CUDA_VISIBLE_DEVICES`."""
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None:
        names = [name.strip() for name in variable.split(",")]
        return [name for name in names if name and not name.startswith("-")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def job_cores(threads: int) -> int:
    """Return the CPU cores of the whole job; `threads` per process, 0 for all cores of the machine."""
    return (threads or len(os.sched_getaffinity(0))) * _count("SLURM_NTASKS")


def job_gpus() -> int:
    """Return the number of GPUs of the whole job."""
    return len(visible_devices()) * _count("SLURM_JOB_NUM_NODES")


def node_name() -> str | None:
    """Return SLURM's name of this node, None outside SLURM."""
    return os.environ.get("SLURMD_NODENAME")


def _count(variable: str) -> int:
    return int(os.environ.get(variable) or 1)
