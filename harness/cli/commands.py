"""`dropbench doctor`: what works on this machine, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, NamedTuple

import typer

from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.table import print_items
from dropbench.harness.errors import EXTRAS, install_commands
from dropbench.harness.settings import Settings

app = typer.Typer(add_completion=False)

LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "submitit", "sqlalchemy", "transformers", "mmdet", "fairseq")


class Finding(NamedTuple):
    """A checked item; `state` is ok, missing (something will not work) or absent (most users do not need it)."""

    what: str
    state: str
    detail: str


@app.command(epilog=examples("doctor", "doctor --json"))
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Report what works on this machine and what is missing."""
    findings = examine()
    print_items([finding._asdict() for finding in findings], as_json)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Check Python, the libraries, the device, SLURM, the compilers, the folders and the disk."""
    import torch

    from dropbench.harness.attention.kernels.c_library import build_error
    from dropbench.harness.training.environment import installed_version

    settings = Settings.from_environment()
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("Python", "ok", python)]
    for name in LIBRARIES:
        installed, state = installed_version(name), "absent" if EXTRAS[name] else "missing"
        findings.append(Finding(name, "ok" if installed else state, installed or f"run {install_commands(name)}"))
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
