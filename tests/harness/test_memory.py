"""Tests of harness.memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from harness.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(8 << 20) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Return the page faults of 64 MiB where as many have been freed, in a process of its own."""
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is on Linux alone")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert 10 * faults("kept") < faults("given back")
