"""Run an analysis on a trained trial and write its findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from dropbench.harness.analysis import ANALYSES, Findings
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.files import write_atomic
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.runs.stamps import stamped
from dropbench.harness.settings import Settings


def analyze(prefix: str, kind: str, options: Options, settings: Settings, output: Path | None = None) -> dict[str, Any]:
    """Run an analysis on the trial whose id begins with `prefix`; write its findings to the run directory or `output`.

    Returns:
        trial, kind, split, samples, scalars (None if not finite), files.

    Raises:
        InputError: the trial or the kind is unknown, the trial has no result, the analysis does not support its model,
            or the folder cannot be written.
    """
    kind = ANALYSES.entry(kind).name
    directory = Runs(settings.runs).find(prefix)
    findings = ANALYSES.get(kind)(Trained(directory, settings), options)
    report: dict[str, Any] = {
        "trial": directory.id,
        "kind": kind,
        **asdict(options),
        "scalars": {name: float(value) if isfinite(value) else None for name, value in findings.scalars.items()},
    }
    folder = output if output is not None else directory.analyses
    report["files"] = [str(file) for file in _write(folder, kind, report, findings)]
    return report


def _write(folder: Path, kind: str, report: Mapping[str, Any], findings: Findings) -> list[Path]:
    """Write figure, arrays and, last, scalars, so that a file of scalars implies the other two."""
    from dropbench.harness.analysis.figures import png

    arrays = BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, **dict(findings.arrays))
    scalars = stamped({"format": 1, **report}, report["trial"])
    text = json.dumps(scalars, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    contents = {name: content.encode() for name, content in findings.texts.items()}
    if findings.draw is not None:
        contents[f"{kind}.png"] = png(findings.draw())
    contents |= {f"{kind}.npz": arrays.getvalue(), f"{kind}.json": text.encode()}
    files = [folder / name for name in contents]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in zip(files, contents.values(), strict=True):
            write_atomic(file, content)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is not a folder: expected a folder to write to") from None
    return files
