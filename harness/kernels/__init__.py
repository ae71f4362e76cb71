"""Kernels in C, compiled when they are first needed and kept; without a compiler all is done by torch instead.

The compiler is ``$CC``, else ``cc``, ``gcc`` or ``clang``. What it makes lies in ``$XDG_CACHE_HOME/dropbench`` (default
``~/.cache/dropbench``), by the sources, the flags, the compiler and the processor, so that nodes of a cluster that
share a home each have their own.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-w")
PATIENCE = 120.0
"""Seconds that a compiler may take."""


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The compiled ``<name>.c``; None where it cannot be compiled here (`reason` says why)."""
    try:
        return ctypes.CDLL(str(_built(name)))
    except _UnavailableError:
        return None


def reason(name: str) -> str:
    """Why `library` is None, in words for people; empty where it is not."""
    try:
        _built(name)
    except _UnavailableError as error:
        return str(error)
    return ""


class _UnavailableError(Exception):
    """There is no compiler, or it fails; the message says so."""


def _built(name: str) -> Path:
    compiler = _compiler()
    if compiler is None:
        raise _UnavailableError("no C compiler: cc, gcc or clang")
    source = SOURCES / f"{name}.c"
    read = [file.read_bytes() for file in (source, *sorted(SOURCES.glob("*.h")))]
    made_of = [*read, " ".join(FLAGS).encode(), compiler.encode(), _version(compiler), _processor()]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dropbench"
    file = folder / f"{name}-{hashlib.sha256(bytes(1).join(made_of)).hexdigest()[:16]}.so"
    if file.exists():
        return file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
        os.close(handle)
        try:
            command = [compiler, *FLAGS, "-o", draft, str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if done.returncode:
                raise _UnavailableError(f"{compiler} fails: {' '.join(done.stderr.split())[:200] or 'no word'}")
            Path(draft).chmod(0o755)
            Path(draft).replace(file)
        finally:
            Path(draft).unlink(missing_ok=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnavailableError(f"{folder}: {' '.join(str(error).split())[:200]}") from None
    return file


def _compiler() -> str | None:
    named = os.environ.get("CC")
    return next(
        (found for name in ([named] if named else ["cc", "gcc", "clang"]) if (found := shutil.which(name))), None
    )


@cache
def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout


@cache
def _processor() -> bytes:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n\n")[0].splitlines()
    except OSError:
        import platform

        return platform.processor().encode()
    return b"\n".join(line for line in lines if line.startswith((b"model name", b"flags", b"Features", b"CPU")))
