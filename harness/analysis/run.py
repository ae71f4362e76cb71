"""`dropbench analyze`: run an analysis on a trial, keep what it found, and tell of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis import ANALYSES, Findings, Options
from harness.analysis.trained import Trained, find_run
from harness.errors import InputError
from harness.files import write_atomic
from harness.registry import load
from harness.rundir import RunDirectory
from harness.settings import Settings


def analyze(start: str, kind: str, options: Options, settings: Settings, output: Path | None = None) -> dict[str, Any]:
    """Run an analysis, and keep it in the run directory and the database, or in a folder of its own.

    Args:
        start: the beginning of the trial's id.
        kind: a name in `ANALYSES`.
        options: which samples.
        settings: where the runs, the data and the database are, and the device.
        output: write here, and leave run directory and database alone.

    Returns:
        trial, kind, split, samples, scalars (None for what is no finite number), files.

    Raises:
        InputError: the trial or the kind is unknown, the trial has no result, the analysis does not fit its model, or
            the folder cannot be written.
    """
    kind = ANALYSES.entry(kind).name
    directory = find_run(settings.runs, start)
    findings = ANALYSES.get(kind)(Trained(directory, settings), options)
    report: dict[str, Any] = {
        "trial": directory.id,
        "kind": kind,
        **asdict(options),
        "scalars": _finite(findings.scalars),
    }
    folder = output if output is not None else directory.analyses
    report["files"] = [str(file) for file in _write(folder, kind, report, findings)]
    if output is None:
        load("db.refresh:refresh")(settings, RunDirectory(directory.path))
    return report


def _write(folder: Path, kind: str, report: Mapping[str, Any], findings: Findings) -> list[Path]:
    """Figure and arrays, and last the scalars: where these are, the others are too."""
    from harness.analysis.figures import png

    contents = {
        "png": png(findings.draw()),
        "npz": _npz(findings.arrays),
        "json": (json.dumps({"format": 1, **report}, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(),
    }
    files = [folder / f"{kind}.{end}" for end in contents]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in zip(files, contents.values(), strict=True):
            write_atomic(file, content)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: expected a folder to write to") from None
    return files


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as a compressed file that is read without pickle."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"array '{name}' holds objects: expected numbers or text")
    file = BytesIO()
    np.savez_compressed(file, allow_pickle=False, **dict(arrays))
    return file.getvalue()


def _finite(scalars: Mapping[str, float]) -> dict[str, float | None]:
    return {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
