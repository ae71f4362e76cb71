"""How long a test waits for another process: it is no judgement of speed, it only ends what is stuck.

The slowest machine that these tests were seen on took three times as long as the fastest for the same test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 600.0
"""Seconds. pytest's own limit in pyproject.toml is twice that, so that the failure names the missed event."""


def wait(condition: Callable[[], Any], what: str, pause: float = 0.05) -> Any:
    """Wait until a condition holds, asking again after each pause in seconds; returns what it gave."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(pause)
    return found
