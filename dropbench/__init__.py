"""DropBench: attention regularizers, and a harness that benchmarks them on nine tasks.

Importing it makes libraries importable whose releases do not fit together (`adapters.compat`).
"""

from __future__ import annotations

import adapters  # noqa: F401 - installs the shims
from dropbench.top_level_names import install
from harness import __all__ as __all__
from harness import __getattr__ as __getattr__

install()
