"""Names of drop units and rescaling modes, importable without torch."""

from __future__ import annotations

from typing import Literal

Unit = Literal["element", "column", "block", "cross"]
Rescale = Literal["renormalize", "inverse", "detached"]
