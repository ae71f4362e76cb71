"""Settings for the whole run: tests reach no network and touch nothing of the person who runs them."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Tests run side by side, one a core, and their tensors are small. Before torch is imported, and for all subprocesses.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# What was started in the background of a script ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in ("DROPBENCH_RUNS", "DROPBENCH_DB", "DROPBENCH_PLUGINS"):
    os.environ.pop(name, None)

# A machine may be busy, so no test has a deadline for one example. In CI the examples are the same every time: a change
# is judged by what it changes. Elsewhere each run looks in new places.
settings.register_profile("anywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anywhere")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a parameter of bytes by its length: packed bytes may hold the time of day, and side by side processes would
    then collect tests of different names.
    """
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None
