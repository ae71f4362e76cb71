"""Atomic writing of files, canonical JSON, and bounded reading of regular files, JSON and YAML."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from dropbench.harness.errors import InputError

MAX_BYTES = 2**31
"""Size limit of a file that is read whole; the largest annotations of COCO have a quarter of that."""
MAX_LIBYAML_BYTES = 2**13
"""Size limit of what PyYAML reads in C, whose stack overflows at some 20,000 levels; in Python it raises an error."""

_LATER: ContextVar[bool] = ContextVar("later", default=False)
"""True inside `synced_together`, which waits for the disk once instead of per file."""


@contextlib.contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that gets the name `path` when the block succeeds, and is deleted if it raises.

    A `private` file is readable by its owner alone.

    Raises:
        OSError: the disk is full or the folder is read-only; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb", opener=_open_private if private else None) as file:
            yield file
            file.flush()
            if not _LATER.get():
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


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


def cache_folder() -> Path:
    """Return the user's cache folder: ``$XDG_CACHE_HOME/dropbench``, else ``~/.cache/dropbench``.

    Raises:
        InputError: the user has no home folder, such as in a container.
    """
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder, "dropbench")
    try:
        return Path.home() / ".cache" / "dropbench"
    except RuntimeError:
        raise InputError("no home folder, in which caches are kept: set XDG_CACHE_HOME to another folder") from None


def write_atomic(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write `content` to `path` atomically; arguments and errors as for `atomic_file`."""
    with atomic_file(path, private=private) as file:
        file.write(content)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_json(path: Path, value: Any, *, private: bool = False) -> None:
    """Write `value` as indented JSON, atomically; arguments and errors as for `atomic_file`."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomic(path, text.encode(), private=private)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; raises OSError for a pipe, which would block, and a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the file cannot be read, is not regular, or has more than `MAX_BYTES`.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise InputError(f"{path}: larger than {MAX_BYTES:,} bytes")
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def read_tail(path: Path, size: int) -> bytes:
    """Return the last `size` bytes of a regular file, or all if it has fewer; b"" if it cannot be read."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read()
    return b""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises as `read_bytes`, and InputError if the file is not JSON."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {' '.join(str(error).split())}") from None


def _yaml_loader(content: bytes) -> Any:
    import yaml

    return yaml.SafeLoader if len(content) > MAX_LIBYAML_BYTES else getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file, if it is small by libyaml, in an eighth of the time; raises as `read_json`.

    A second value of a key is an error: YAML readers silently keep the last.
    """
    content = read_bytes(path)
    try:
        loader = _yaml_loader(content)(content.decode())
        root = loader.get_single_node()
        _require_single_keys(root)
        return None if root is None else loader.construct_document(root)
    except Exception as error:  # a scalar that does not fit its tag raises whatever its constructor does
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise InputError(f"{where}: not valid YAML: {' '.join(str(problem or error).split())}") from None


def _require_single_keys(root: Any) -> None:
    import yaml

    nodes, seen = [root], set[int]()  # an alias is the node of its anchor
    while nodes:
        node = nodes.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        nodes += [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else node.value
        keys = set[tuple[str, object]]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in keys:
                    raise yaml.MarkedYAMLError(problem=f"second key '{key.value}'", problem_mark=key.start_mark)
                keys.add((key.tag, key.value))


def yaml_line(path: Path, keys: Iterable[object]) -> int:
    """Return the line of a value in a valid YAML file by its keys and indices; those that do not exist are ignored."""
    import yaml

    content = read_bytes(path)
    node, line = yaml.compose(content.decode(), _yaml_loader(content)), 0
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            children = {name.value: (value, name.start_mark.line) for name, value in node.value}
        else:
            items = node.value if isinstance(node, yaml.SequenceNode) else ()
            children = {str(index): (item, item.start_mark.line) for index, item in enumerate(items)}
        node, line = children.get(str(key), (node, line))
    return line + 1
