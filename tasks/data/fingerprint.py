"""A cheap fingerprint of files, so that results on a subset are never mixed with those on the full set.

It depends neither on time stamps nor on absolute paths: copies of a set have one fingerprint on every machine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.errors import InputError

# Part of every fingerprint. Raise it when a reader or a split rule starts to return other rows for the same files.
RULES = 1
BLOCK = 64 * 1024
SAMPLE = 64


def fingerprint(folder: Path, files: Iterable[Path]) -> str:
    """Return 12 hex digits from the names, the sizes, and the first and last 64 KiB of the files.

    A folder among `files` (of images, say) represents every file below it: all names count, and of 64 evenly spread
    files the size and content, too. Hidden files do not count.

    Raises:
        InputError: a file cannot be read.
    """
    digest = hashlib.sha256(f"dropbench {RULES}\n".encode())
    try:
        for path in sorted(files):
            relative = path.relative_to(folder).as_posix()
            lines = _tree(path, relative) if path.is_dir() else [_file(path, relative)]
            for line in lines:
                digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}: cannot compute the fingerprint") from None
    return digest.hexdigest()[:12]


def _file(path: Path, relative: str) -> str:
    size = path.stat().st_size
    content = hashlib.sha256()
    with path.open("rb") as file:
        content.update(file.read(BLOCK))
        file.seek(max(BLOCK, size - BLOCK))
        content.update(file.read(BLOCK))
    return f"{relative} {size} {content.hexdigest()}"


def _tree(root: Path, relative: str) -> Iterator[str]:
    files: list[str] = []
    for folder, folders, names in os.walk(str(root), onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        visible = sorted(name for name in names if not name.startswith("."))
        listing = chr(0).join(visible).encode("utf-8", "surrogateescape")
        subfolder = relative + folder.removeprefix(str(root))
        yield f"{subfolder}/ {len(visible)} {hashlib.sha256(listing).hexdigest()}"
        files.extend(f"{subfolder}/{name}" for name in visible)
    sampled = min(SAMPLE, len(files))
    for name in (files[index * len(files) // sampled] for index in range(sampled)):
        yield _file(root / os.path.relpath(name, relative), name)


def _raise(error: OSError) -> None:
    raise error
