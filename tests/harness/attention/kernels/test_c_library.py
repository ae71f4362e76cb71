"""The cache of compiled kernels: damaged files are compiled again, and without a compiler torch computes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropbench.harness.attention.backends import select_backend
from dropbench.harness.attention.kernels import c_library
from tests.harness.attention.attention_case import DROPS, Case, needs_compiler

LOAD = """
from dropbench.harness.attention.kernels.c_library import load_library
print(load_library("cpu_fused") and "loaded")
"""


def load(cache: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Load the kernel in a process of its own: a damaged one would end it."""
    command = ["/bin/sh", "-c", f'{before} exec "$0" "$@"', sys.executable, "-c", LOAD]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def compiled(cache: Path) -> list[Path]:
    """Return the cached kernels."""
    return [*cache.rglob("cpu_fused*.so")]


@needs_compiler
def test_a_damaged_kernel_is_compiled_again(tmp_path: Path) -> None:
    assert load(tmp_path).stdout == "loaded\n"
    [file] = compiled(tmp_path)
    whole = file.read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:middle], changed):
        file.write_bytes(content)
        done = load(tmp_path)
        assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr
        assert [path.read_bytes() for path in compiled(tmp_path)] == [whole]


@needs_compiler
def test_a_full_disk_leaves_no_kernel_behind(tmp_path: Path) -> None:
    done = load(tmp_path, "ulimit -f 8;")
    assert (done.returncode, done.stdout, compiled(tmp_path)) == (0, "None\n", []), done.stderr
    assert load(tmp_path).stdout == "loaded\n"


@pytest.fixture
def broken_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the compiler answer for its version, and fail for the kernel."""
    (compiler := tmp_path / "cc").write_text('#!/bin/sh\ntest "$1" = --version || { echo no header >&2; exit 1; }\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for cached in (c_library.load_library, c_library.load_function):
        cached.cache_clear()
    yield
    for cached in (c_library.load_library, c_library.load_function):
        cached.cache_clear()


@pytest.mark.usefixtures("broken_compiler")
def test_torch_computes_with_a_warning_where_the_compiler_fails() -> None:
    case = Case(DROPS[0], "renormalize")
    with pytest.warns(RuntimeWarning, match=r"attention on CPUs, which is slower: .*/cc failed: no header"):
        assert select_backend(case.q, case.k, case.v, case.spec, "renormalize", None) == "eager"
    case.assert_matches_eager("eager")
    with pytest.raises(RuntimeError, match="failed: no header"):
        c_library.load_function("cpu_fused", "attend")
