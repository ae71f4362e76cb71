"""Damage to files: contents that a full disk or a crash leaves, and other things than files in their place."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from dropbench.harness.runs.lease import LEASE_TIMEOUT_S

CONTENTS = {
    "empty": b"",
    "truncated": b'{"number": 1, "state": "succee',
    "zeros": bytes(100),
    "undecodable": b'{"state": "\xff\xfe"}',
    "list": b"[]",
    "foreign": b'{"number": "one", "state": 3, "event": "resume", "step": "last", "metrics": [], "notes": 4}\n',
    "nested": b"[" * 100_000,
    "huge": b'{"number": 1, "state": "failed", "event": "train", "step": 1%s, "loss": 1%s}\n'
    % (b"0" * 400, b"0" * 400),
    "surrogate": b'{"number": 1, "state": "failed", "cause": "\\ud800", "event": "train", "step": 1, "loss": 1.0, '
    b'"metrics": {"\\ud800": 1}}\n',
}
"""Contents by name."""

DAMAGES = [*CONTENTS, "folder", "loop", "dangling", "pipe"]
"""Names of everything that `damage` can do."""


def damage(file: Path, kind: str) -> Path:
    """Put damage in the place of a file, and return its path."""
    if file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    if kind in CONTENTS:
        file.write_bytes(CONTENTS[kind])
    elif kind == "folder":
        file.mkdir()
        (file / "inside").touch()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file if kind == "loop" else file.with_name("nothing"))
    return file


def age(directory: Path) -> None:
    """Let the last heartbeat of a run directory's holder be long ago."""
    past = time.time() - 2 * LEASE_TIMEOUT_S
    for file in directory.glob("lease*/*"):
        os.utime(file, (past, past), follow_symlinks=False)


def write_long_ago(database: Path) -> None:
    """Let another program's last write to a database be long ago, so that no command waits for the mark of ours."""
    os.utime(database, (0.5, 0.5))


class TouchesAFile:
    """A hostile pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)
