"""`dropbench doctor`: what works on this machine, what is missing, and whether a regularizer acts in a model."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from typing import Annotated

import typer

from dropbench.harness.checking.findings import Finding, State
from dropbench.harness.cli.completion import complete_regularizer, complete_source
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.table import print_items
from dropbench.harness.errors import EXTRAS, InputError, install_commands
from dropbench.harness.settings import Settings

app = typer.Typer(add_completion=False)

LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "submitit", "sqlalchemy", "transformers", "mmdet", "fairseq")


DEFAULT_REGULARIZER = "dropkey:ratio=0.3"


@app.command(
    epilog=examples(
        "doctor",
        "doctor --json",
        "doctor --model timm:vit_tiny_patch16_224",
        "doctor --model hf:bert-base --regularizer drophead",
    )
)
def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:NAME",
            help="Check a library's model instead, with random input: timm:NAME, or hf:FOLDER with its config.json.",
            autocompletion=complete_source,
        ),
    ] = None,
    regularizer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help=f"The regularizer of the model.  [default: {DEFAULT_REGULARIZER}]",
            autocompletion=complete_regularizer,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report what works on this machine and what is missing, or whether a regularizer acts in a model."""
    if model is not None:
        findings = check_model(model, regularizer or DEFAULT_REGULARIZER)
    elif regularizer is not None:
        raise InputError("--regularizer: it is for a model: add `--model timm:NAME` or `--model hf:FOLDER`")
    else:
        findings = examine()
    print_items([finding._asdict() for finding in findings], as_json)
    if any(finding.state in ("missing", "fails") for finding in findings):
        raise typer.Exit(1)


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
