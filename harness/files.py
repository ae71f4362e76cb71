"""Files written so that a reader never sees half of one, and settings read from YAML."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

_LATER: ContextVar[bool] = ContextVar("later", default=False)
"""Whether somebody waits for the disk after this file and others."""


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; it takes the name `path` when the block ends well, and is gone otherwise.

    Raises:
        OSError: the disk is full or the folder is read-only; nothing is left behind.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if not _LATER.get():
                os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())  # mkstemp's file is its owner's alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def synced_together(folder: Path) -> Iterator[None]:
    """Wait for the disk once, at the end, and not for each file that is written below `folder` meanwhile.

    For thousands of files that nobody relies on before that: until then a machine that loses its power may leave some
    of them empty.
    """
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # not Linux
        os.sync()
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(handle) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(handle)


def _umask() -> int:
    """What the user wants no file to allow; it can only be read by setting it."""
    current = os.umask(0o077)
    os.umask(current)
    return current


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path` whole or not at all; raises OSError as `atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomic(path, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, by libyaml where PyYAML has it: a sixth of the time for our suites.

    Raises:
        OSError: it cannot be read.
        yaml.YAMLError: it is no YAML.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - either is a SafeLoader
