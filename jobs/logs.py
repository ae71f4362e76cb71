"""A trial's log, found by the beginning of its id, shown once or followed."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings

PAUSE = 0.3


def find_directory(settings: Settings, prefix: str) -> RunDirectory:
    """The one run directory whose id begins so; the database is not needed for it.

    Raises:
        InputError: there is none, or more than one.
    """
    found = [directory for directory in RunDirectory.all(settings.runs) if directory.id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"no trial '{prefix}' was started in {settings.runs}: expected a trial's id, or its beginning")
    shown = ", ".join(directory.id for directory in found[:3])
    raise InputError(f"'{prefix}' is the beginning of {len(found)} trials: {shown}{', …' if len(found) > 3 else ''}")


def show(directory: RunDirectory, out: TextIO, *, follow: bool = False) -> None:
    """Print ``log.txt``; with `follow`, what is added to it until no worker is at the trial."""
    position = 0
    while True:
        working = follow and directory.locked()
        try:
            with open(directory.path / "log.txt", encoding="utf-8", errors="replace") as file:
                file.seek(position)
                shutil.copyfileobj(file, out)
                position = file.tell()
        except FileNotFoundError:
            if not working:
                raise InputError(f"{directory.id}: no log yet: the trial has not begun") from None
        out.flush()
        if not working:
            return
        time.sleep(PAUSE)
