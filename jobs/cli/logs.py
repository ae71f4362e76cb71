"""Show or follow the log of a trial."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from harness.errors import InputError
from harness.runs.run_directory import RunDirectory

POLL_INTERVAL_S = 0.3


def show(directory: RunDirectory, out: TextIO, *, follow: bool = False) -> None:
    """Print ``log.txt``; with `follow`, also what is appended until no worker holds the trial."""
    position = 0
    while True:
        running = follow and directory.locked()
        try:
            with open(directory.path / "log.txt", encoding="utf-8", errors="replace") as file:
                file.seek(position)
                shutil.copyfileobj(file, out)
                position = file.tell()
        except FileNotFoundError:
            if not running:
                raise InputError(f"{directory.id}: no log yet: the trial has not started") from None
        out.flush()
        if not running:
            return
        time.sleep(POLL_INTERVAL_S)
