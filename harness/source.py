"""The source that this process began with: its digest, and a guard, so that no process mixes two states of the code."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from dropbench.harness.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
TRAINING = ("harness", "adapters", "tasks")
"""The folders that compute a trial's numbers."""
FOLDERS = (*TRAINING, "db", "jobs")
SUFFIXES = (".py", ".c", ".h")

Stamp = tuple[int, int]
"""Time of the last change of a file in nanoseconds, and its size in bytes."""


class CodeChangedError(InputError):
    """The package has changed on disk since this process started."""


@cache
def at_start() -> Mapping[str, tuple[Stamp, str]]:
    """Return stamp and SHA-256 of the package's files at the first call, after which changed ones are not imported.

    A process calls it before its work: whatever it imports later is of the same state of the code.
    """
    files = {file: (stamp, _digest(file)) for file, stamp in _files()}
    sys.meta_path.insert(0, _Guard(files))
    return files


@cache
def code_digest() -> str:
    """Return 12 hex digits of the code that this process trains with, that of `TRAINING`."""
    folders = tuple(f"{ROOT}/{folder}/" for folder in TRAINING)
    lines = (
        f"{file[len(str(ROOT)) :]} {digest}\n" for file, (_, digest) in at_start().items() if file.startswith(folders)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


def require_unchanged() -> None:
    """Raise CodeChangedError if a file of the package differs from what it was when this process started."""
    before, now = at_start(), dict(_files())
    for file in {**before, **now}:
        known = before.get(file)
        if known is None or file not in now or (now[file] != known[0] and _digest(file) != known[1]):
            raise _changed(file)


def read_source(file: Path) -> bytes:
    """Return the content of a file; raise CodeChangedError if `at_start` was called and it has changed since then."""
    content = file.read_bytes()
    if at_start.cache_info().currsize:
        known = at_start().get(os.path.realpath(file))
        if known is None or hashlib.sha256(content).hexdigest() != known[1]:
            raise _changed(str(file))
    return content


def _files() -> Iterator[tuple[str, Stamp]]:
    """Yield the files of the package on disk with their stamps, in order."""
    for folder in FOLDERS:
        for path, folders, names in os.walk(ROOT / folder):
            folders.sort()
            for file in sorted(f"{path}/{name}" for name in names if name.endswith(SUFFIXES)):
                found = Path(file).stat()
                yield file, (found.st_mtime_ns, found.st_size)


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _changed(file: str) -> CodeChangedError:
    return CodeChangedError(f"{file} has changed since this process started: run the command again, which continues")


class _Guard:
    """An import finder that finds nothing, and raises CodeChangedError for modules that have changed since."""

    def __init__(self, files: Mapping[str, tuple[Stamp, str]]) -> None:
        self.files, self.folders = files, tuple(f"{ROOT}/{folder}/" for folder in FOLDERS)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if path is not None and name.startswith("dropbench.") else None
        file = os.path.realpath(spec.origin) if spec is not None and spec.origin else ""
        if file.startswith(self.folders):
            known = self.files.get(file)
            if known is None or _digest(file) != known[1]:
                raise _changed(file)
        return None
