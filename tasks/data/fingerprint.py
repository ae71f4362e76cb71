"""The identity of a set of files: a fingerprint of their names, sizes and whole content.

It depends neither on time stamps nor on absolute paths: copies of a set have one fingerprint on every machine. Content
is read once: ``$XDG_CACHE_HOME/dropbench/fingerprints`` keeps a hash of each folder, which is valid while every file
in it keeps its name, size, inode, and times of modification and change. Of a large set it also keeps the fingerprint of
each copy, such as those on the local disks of a cluster's nodes. One process examines a set, while others wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dropbench.harness.errors import InputError
from dropbench.harness.files import write_atomic
from dropbench.tasks.data.synthetic_cache import cache_folder

# Part of every fingerprint. Raise it when a reader or a split rule starts to return other rows for the same files.
RULES = 1
OWN_RULES = 2
"""The same for the readers of a user's own files."""
MANY_FILES, EXAMINED_S = 10_000, 60.0
"""A set of at least `MANY_FILES` files is examined once per `EXAMINED_S` seconds at most, by whichever process."""
TIMER_NS = 2 * 10**9
"""The coarsest time stamps of file systems: a younger file may change again without another time stamp."""
LARGE = 2**28
"""Number of bytes from which a progress bar is shown, and the fingerprint of every copy of a set is kept."""

_recent: dict[str, tuple[float, str]] = {}


class _Folder(NamedTuple):
    """The visible files of a folder; `name` is relative to the set, and `stamp` changes with the files."""

    name: str
    path: str
    files: list[str]
    sizes: list[int]
    stamp: str
    newest: int


def fingerprint(folder: Path, files: Iterable[Path], *, trust_cache: bool = False, rules: int = RULES) -> str:
    """Return 16 hex digits from the names, the sizes and the whole content of the files.

    A folder among `files` (of images, say) represents every file below it. Hidden files do not count.
    With `trust_cache`, a cached fingerprint is returned without examining the files. Raises InputError if a file cannot
    be read.
    """
    paths = sorted(files)
    key = _sha256([str(rules), *map(os.path.abspath, (folder, *paths))])[:16]
    caches = cache_folder() / "fingerprints"
    if trust_cache and "fingerprint" in (cache := _read_cache(caches / key)):
        if cache.get("many"):
            _recent[key] = time.monotonic(), str(cache["fingerprint"])
        return str(cache["fingerprint"])
    try:
        copy = f"{key}-{_identity(folder, paths)}"
        if (value := _examined(key, caches / copy)) is None:
            with _one_at_a_time(caches / f"{key}-{folder.stat().st_ino}.lock"):
                if (value := _examined(key, caches / copy)) is None:
                    value = _examine_all(folder, paths, rules, caches / key, caches / copy)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}: cannot compute the fingerprint") from None
    return value


def _identity(folder: Path, paths: Sequence[Path]) -> str:
    """Return hex digits that are the same on all machines that share a set, and others for each copy of it."""
    stats = [path.stat() for path in paths]
    return _sha256(f"{status.st_ino} {status.st_ctime_ns}" for status in stats)[:16]


def _examined(key: str, copy: Path) -> str | None:
    """Return the fingerprint of a set of many files that this or another process has just examined."""
    examined, value = _recent.get(key, (-EXAMINED_S, ""))
    if time.monotonic() - examined < EXAMINED_S:
        return value
    with suppress(OSError):
        if 0 <= time.time() - copy.stat().st_mtime < EXAMINED_S and (cache := _read_cache(copy)).get("many"):
            return str(cache["fingerprint"])
    return None


def _examine_all(folder: Path, paths: Sequence[Path], rules: int, cache_file: Path, copy: Path) -> str:
    """Examine all files of a set, and read those that have changed."""
    settled = time.time_ns() - TIMER_NS
    trees = [list(_folders(path, path.relative_to(folder).as_posix())) for path in paths if path.is_dir()]
    plain = [path.relative_to(folder).as_posix() for path in paths if not path.is_dir()]
    parts = [_examine("", str(folder), plain), *(part for tree in trees for part in tree)]
    many = sum(len(part.files) for part in parts) >= MANY_FILES
    stamp = _sha256(f"{part.name} {part.stamp}" for part in parts)
    if (seen := _read_cache(copy)).get("stamp") == stamp:
        value = str(seen["fingerprint"])
    else:
        cache = _read_cache(cache_file)
        hashes = cache.get("folders", {})
        changed = [part for part in parts if hashes.get(part.name, [""])[0] != part.stamp]
        hashes |= {part.name: [part.stamp, content] for part, content in _hash(changed)}
        value = _sha256([f"dropbench {rules}", *(f"{part.name} {hashes[part.name][1]}" for part in parts)])[:16]
        if changed or value != cache.get("fingerprint"):
            kept = {part.name: hashes[part.name] for part in parts if part.newest < settled}
            _write_cache(cache_file, {"folders": kept, "fingerprint": value, "many": many})
    large = sum(size for part in parts for size in part.sizes) >= LARGE
    if many or (large and seen.get("stamp") != stamp):
        settled_stamp = stamp if all(part.newest < settled for part in parts) else ""
        _write_cache(copy, {"stamp": settled_stamp, "fingerprint": value, "many": many})
    if many:
        _recent[cache_file.name] = time.monotonic(), value
    return value


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait for other processes that examine the same files, if the file system can lock."""
    file = None
    with suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if file is not None:
            file.close()


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _folders(root: Path, relative: str) -> Iterator[_Folder]:
    for path, folders, names in os.walk(str(root), onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            link = f"{path}/{name}"
            if Path(link).is_symlink() and Path(path).resolve().is_relative_to(Path(link).resolve()):
                raise InputError(f"{link}: a link to a folder that contains it: remove it from the data set")
        visible = sorted(name for name in names if not name.startswith("."))
        yield _examine(relative + path.removeprefix(str(root)), path, visible)


def _raise(error: OSError) -> None:
    raise error


def _examine(name: str, path: str, files: list[str]) -> _Folder:
    stats = [os.stat(f"{path}/{file}") for file in files]  # noqa: PTH116 - a Path for each of a million files is slow
    for file, status in zip(files, stats, strict=True):
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}/{file}: expected a regular file: remove it from the data set")
    stamps = [(status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns) for status in stats]
    lines = (f"{file} {stamp}" for file, stamp in zip(files, stamps, strict=True))
    newest = max((max(stamp[2:]) for stamp in stamps), default=0)
    return _Folder(name, path, files, [stamp[0] for stamp in stamps], _sha256(lines), newest)


def _hash(folders: Sequence[_Folder]) -> Iterator[tuple[_Folder, str]]:
    """Read folders in parallel threads; yield each with a hash of its files' names, sizes and contents."""
    if not folders:
        return
    from rich.console import Console
    from rich.progress import Progress

    total = sum(size for folder in folders for size in folder.sizes)
    pool = ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0))))
    hidden = total < LARGE or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
        advance = partial(bar.advance, bar.add_task("hashing the data (once)", total=total))
        try:
            for folder in folders:
                paths = (f"{folder.path}/{name}" for name in folder.files)
                rows = zip(folder.files, folder.sizes, pool.map(partial(_content, advance), paths), strict=True)
                yield folder, _sha256(f"{name} {size} {content}" for name, size, content in rows)
        finally:
            pool.shutdown(cancel_futures=True)


def _content(advance: Callable[[int], None], path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(2**20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def _read_cache(file: Path) -> dict[str, Any]:
    """Return the content of a cache file; {} if it is missing or damaged."""
    with suppress(OSError, ValueError):
        digest, _, content = file.read_text(encoding="ascii").partition("\n")
        if digest == _sha256([content]):
            return dict(json.loads(content))
    return {}


def _write_cache(file: Path, content: dict[str, Any]) -> None:
    """Write a cache file below its own digest; if that is impossible, the files are read again next time."""
    text = json.dumps(content)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, f"{_sha256([text])}\n{text}".encode())
