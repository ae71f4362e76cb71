"""Files of runs before and after garbage collection."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from dropbench.harness.trials.trial import Trial
from dropbench.jobs.cleanup.garbage import DAY
from dropbench.jobs.cleanup.gc import Freed

Work = Callable[[list[Trial]], str]


def grow_old(folder: Path, days: float = 40) -> None:
    """Set the modification time of all files back."""
    modified_at = time.time() - days * DAY
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (modified_at, modified_at))


def read_permanent(*folders: Path) -> dict[Path, bytes]:
    """Return the contents of all files that must never be deleted."""
    permanent = (
        *("trial.json", "result.json", "events.jsonl", "log.txt", "environment.json"),
        *("attempts", "analysis"),
    )
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file() and file.name[0] != "."]
    return {file: file.read_bytes() for file in files if file.name in permanent or file.parent.name in permanent}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def kinds(freed: Freed) -> dict[str, int]:
    return {kind: count for kind, count in freed.files.items() if count}
