"""Settings for the whole run: tests reach no network and touch nothing of the person who runs them."""

from __future__ import annotations

import os

# Tests run side by side, one a core, and their tensors are small. Before torch is imported, and for all subprocesses.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
for name in ("DROPBENCH_RUNS", "DROPBENCH_DB", "DROPBENCH_PLUGINS"):
    os.environ.pop(name, None)
