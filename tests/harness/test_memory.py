"""Test that freed memory does not add up in a process that keeps it."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from dropbench.harness.memory import MAX_GROWTH, FreedMemory, anonymous_bytes, keep_freed_memory

MIB = 2**20


def grow(limited: bool) -> int:
    """Return by how much a process that frees twice `MAX_GROWTH`, but for a piece at its end, is larger after it."""
    keep_freed_memory()
    freed, before = FreedMemory(), anonymous_bytes()
    pieces = [bytes([1]) * MIB for _ in range(2 * MAX_GROWTH // MIB)]
    last = bytes([1]) * MIB
    del pieces
    if limited:
        freed.limit()
    return anonymous_bytes() - before - len(last)


@pytest.mark.skipif(sys.platform != "linux" or not anonymous_bytes(), reason="this system's malloc has no limit to set")
@pytest.mark.parametrize("limited", [True, False])
def test_freed_memory_goes_back_once_a_process_has_grown(limited: bool) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        assert (process.submit(grow, limited).result() < MAX_GROWTH / 4) is limited
