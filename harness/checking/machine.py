"""Check what works on this machine, and whether a regularizer acts in a library's model, for `dropbench doctor`."""

from __future__ import annotations

import os
import shutil
import sys
import warnings

from dropbench.harness.checking.findings import Finding, State
from dropbench.harness.errors import EXTRAS, InputError, install_commands
from dropbench.harness.settings import Settings

LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "submitit", "sqlalchemy", "transformers", "mmdet", "fairseq")


def check_model(name: str, regularizer: str) -> list[Finding]:
    """Build a library's model, such as ``timm:vit_tiny_patch16_224``, regularize it, and check it with random input.

    Raises:
        InputError: there is no such model, it cannot be regularized, or it does not run with random input.
    """
    from dropbench.harness.checking.check import check
    from dropbench.harness.models.adapter import SOURCES
    from dropbench.harness.models.regularize import regularize

    source, colon, rest = name.partition(":")
    if not colon:
        raise InputError(f"--model {name}: expected timm:NAME or hf:FOLDER")
    model, batch = SOURCES.get(source)(rest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # also on losses, which the check mentions
        regularize(model, regularizer, quiet=True)
        try:
            return list(check(model, batch).findings)
        except Exception as error:
            raise InputError(
                f"--model {name}: it does not run with random input ({type(error).__name__}: {error}): in Python,"
                " `dropbench.check(model, batch)` takes a batch of your own"
            ) from error


def examine() -> list[Finding]:
    """Check Python, the libraries, the device, SLURM, the compilers, the folders and the disk."""
    import torch

    from dropbench.harness.attention.kernels.c_library import build_error
    from dropbench.harness.training.environment import installed_version

    settings = Settings.from_environment()
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("Python", "ok", python)]
    for name in LIBRARIES:
        installed = installed_version(name)
        state: State = "ok" if installed else "absent" if EXTRAS[name] else "missing"
        findings.append(Finding(name, state, installed or f"run {install_commands(name)}"))
    cpu = f"CPU, {len(os.sched_getaffinity(0))} cores, no GPU"
    findings.append(Finding("device", "ok", torch.cuda.get_device_name() if torch.cuda.is_available() else cpu))
    slurm = shutil.which("sbatch")
    findings.append(Finding("SLURM", "ok" if slurm else "absent", slurm or "no sbatch: trials run on this machine"))
    error = build_error("cpu_fused")
    kernel = Finding("C kernel", "absent", f"attention that drops is slower: {error}")
    findings.append(kernel if error else Finding("C kernel", "ok", "built"))
    compiler = shutil.which("c++") or shutil.which("g++")
    findings.append(Finding("C++ compiler", "ok" if compiler else "absent", compiler or "no torch.compile without"))
    for what, folder, access in (("data folder", settings.data, os.F_OK), ("runs folder", settings.runs, os.W_OK)):
        if folder.is_dir():
            findings.append(Finding(what, "ok" if os.access(folder, access) else "missing", str(folder.absolute())))
        else:
            findings.append(Finding(what, "absent", f"{folder.absolute()} is not there yet"))
    free = shutil.disk_usage(settings.runs if settings.runs.is_dir() else ".").free / 2**30
    findings.append(Finding("disk", "ok" if free > 1 else "missing", f"{free:.1f} GiB free"))
    return findings
