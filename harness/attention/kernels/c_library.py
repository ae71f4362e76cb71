"""C kernels, compiled on first use and cached; where that fails, torch operations do the work.

The compiler is ``$CC``, else ``cc``, ``gcc`` or ``clang``. Libraries are cached in ``$XDG_CACHE_HOME/dropbench``
(default ``~/.cache/dropbench``) under a hash of sources, flags, compiler and CPU: nodes of a cluster that share a home
directory each use their own. A hash of the library itself follows. A file that does not have it was cut by a full disk
or a crash, and running it would end the process: the kernel is compiled again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.files import cache_folder, write_atomic
from dropbench.harness.source import CodeChangedError, read_source

SOURCE_DIR = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-w")
COMPILE_TIMEOUT_S = 120.0
PROPERTIES = (b"vendor_id", b"model name", b"flags", b"Features", b"CPU")
"""How lines of /proc/cpuinfo begin that name the processor and its instructions."""

_build_errors: dict[str, str] = {}


@cache
def load_library(name: str) -> ctypes.CDLL | None:
    """Return the compiled ``<name>.c``, or None if that is impossible (`build_error` gives the reason).

    Raises:
        CodeChangedError: its source has changed since this process started.
    """
    _build_errors[name] = ""
    try:
        return ctypes.CDLL(str(_build(name)))
    except CodeChangedError:
        raise
    except (InputError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        _build_errors[name] = " ".join(str(error).split())[:300]
        return None


@cache
def load_function(library: str, name: str) -> ctypes._NamedFuncPointer:
    """Return a function without a result of a library that can be compiled, as `select_backend` checks."""
    loaded = load_library(library)
    if loaded is None:
        raise RuntimeError(build_error(library))
    function: ctypes._NamedFuncPointer = getattr(loaded, name)
    function.restype = None
    return function


def build_error(name: str) -> str:
    """Return the reason why `load_library` returns None, as a message for users; empty if it does not."""
    load_library(name)
    return _build_errors[name]


def struct_fields(**names: str) -> list[tuple[str, Any]]:
    """Return the `_fields_` of a structure from names per type, such as ``int64="batch heads"``."""
    return [(name, getattr(ctypes, f"c_{kind}")) for kind, group in names.items() for name in group.split()]


@cache
def gomp_parallel() -> ctypes._NamedFuncPointer | None:
    """Return ``GOMP_parallel`` of the OpenMP runtime that torch has loaded (GNU, LLVM or Intel); None without one.

    The runtime is looked up among the loaded files: another library of the same name would start its own threads, in
    addition to torch's.
    """
    try:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return None
    for file in sorted(loaded):
        if re.match(r"lib(gomp|iomp|omp)", Path(file).name):
            try:
                return ctypes.CDLL(file).GOMP_parallel
            except (OSError, AttributeError):
                continue
    return None


def _build(name: str) -> Path:
    """Return the file of a library, compiled unless it is cached; raise OSError, RuntimeError or SubprocessError."""
    candidates = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compiler = next(filter(None, map(shutil.which, candidates)), None)
    if compiler is None:
        raise RuntimeError("no C compiler: install cc, gcc or clang")
    source = SOURCE_DIR / f"{name}.c"
    contents = [read_source(file) for file in (source, *sorted(SOURCE_DIR.glob("*.h")))]
    hashed = [*contents, " ".join(FLAGS).encode(), compiler.encode(), _compiler_version(compiler), _cpu_model()]
    folder, stem = cache_folder(), f"{name}-{_digest(bytes(1).join(hashed))}"
    for library in folder.glob(f"{stem}-*.so"):
        if library.stem == f"{stem}-{_digest(library.read_bytes())}":
            return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as draft_folder:
        draft = Path(draft_folder, f"{name}.so")
        command = [compiler, *FLAGS, "-o", str(draft), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler} failed: {done.stderr[:1000] or 'no error message'}")
        content = draft.read_bytes()
    library = folder / f"{stem}-{_digest(content)}.so"
    write_atomic(library, content)
    return library


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@cache
def _compiler_version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, timeout=COMPILE_TIMEOUT_S, check=False).stdout


@cache
def _cpu_model() -> bytes:
    """Return the lines of /proc/cpuinfo that `-march=native` depends on, or what else names the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n\n")[0].splitlines()
    except OSError:
        return platform.processor().encode()
    return b"\n".join(line for line in lines if line.startswith(PROPERTIES))
