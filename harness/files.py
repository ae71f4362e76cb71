"""Atomic writing of files, canonical JSON, and reading of YAML."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

_LATER: ContextVar[bool] = ContextVar("later", default=False)
"""True inside `synced_together`, which waits for the disk once instead of per file."""


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets the name `path` when the block succeeds, and is deleted if it raises.

    Raises:
        OSError: the disk is full or the folder is read-only; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if not _LATER.get():
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def synced_together(folder: Path) -> Iterator[None]:
    """Wait for the disk once, at the end, instead of for each file that the block writes below `folder`.

    Until then, a power failure may leave some of the files empty.
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


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; raises OSError as `atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomic(path, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file, read by libyaml if PyYAML has it, in a sixth of the time.

    Raises:
        OSError: the file cannot be read.
        yaml.YAMLError: the file is not YAML.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - either is a SafeLoader
