"""`dropbench doctor`: what works on this machine, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from harness.settings import Settings

NEEDED = ("torch", "torchvision", "timm", "accelerate", "transformers", "submitit", "sqlalchemy", "mmdet", "fairseq")


class Finding(NamedTuple):
    """One thing looked at; `state` is ok, missing (something will not work) or absent (not needed for most)."""

    what: str
    state: str
    detail: str


def examine() -> list[Finding]:
    """Look at Python, the libraries, the device, SLURM, the compiler, the folders and the disk."""
    settings = Settings.from_environment()
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("Python", "ok" if sys.version_info[:2] == (3, 11) else "missing", f"{python}, expected 3.11")]
    findings += [_library(name) for name in NEEDED]
    findings.append(_device())
    slurm = shutil.which("sbatch")
    findings.append(Finding("SLURM", "ok" if slurm else "absent", slurm or "no sbatch: trials run on this machine"))
    findings.append(_kernel())
    compiler = shutil.which("c++") or shutil.which("g++")
    findings.append(Finding("C++ compiler", "ok" if compiler else "absent", compiler or "no torch.compile without"))
    for what, folder in (("data folder", settings.data), ("runs folder", settings.runs)):
        if folder.is_dir():
            writable = what == "data folder" or os.access(folder, os.W_OK)
            findings.append(Finding(what, "ok" if writable else "missing", str(folder.absolute())))
        else:
            findings.append(Finding(what, "absent", f"{folder.absolute()} is not there yet"))
    free = shutil.disk_usage(settings.runs if settings.runs.is_dir() else ".").free / 2**30
    findings.append(Finding("disk", "ok" if free > 1 else "missing", f"{free:.1f} GiB free"))
    return findings


def _library(name: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "missing", "not installed: make setup")


def _kernel() -> Finding:
    from harness.attention.kernels.c_library import build_error

    why = build_error("cpu_masks")
    return Finding("C kernel", "absent" if why else "ok", f"attention that drops is slower: {why}" if why else "built")


def _device() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("device", "ok", torch.cuda.get_device_name())
    return Finding("device", "ok", f"CPU, {len(os.sched_getaffinity(0))} cores, no GPU")
