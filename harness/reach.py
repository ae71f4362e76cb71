"""`Reach`: which of a model's regularized sites attend in training, so that an idle one is named once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

PASSES = 50
"""Training passes after which sites that have not attended are named: some models drop layers at random."""


class Reach:
    """Counts the calls of attention at the sites of one model in training.

    It warns once: after `PASSES` calls at one site, or as many forward passes of a module without a call, it names the
    sites that have had none.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.calls = dict.fromkeys(names, 0)
        self.idle = dict.fromkeys(self.calls, 0)
        self.told = False

    def note_call(self, name: str) -> None:
        """Count a call of attention."""
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.calls[name] == PASSES:
            self._tell()

    def note_pass(self, name: str) -> None:
        """Count a forward pass of a site's module, after its calls."""
        if not self.calls.get(name):
            self.idle[name] = self.idle.get(name, 0) + 1
            if self.idle[name] == PASSES:
                self._tell()

    def _tell(self) -> None:
        missing = [name for name, calls in self.calls.items() if not calls]
        if missing and not self.told:
            self.told = True
            names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            warnings.warn(
                f"{len(missing)} of {len(self.calls)} regularized sites have not attended in {PASSES} training passes:"
                f" {names}: nothing is regularized there; exclude them (exclude=[…]), or say that this is expected"
                " (unreached='ignore')",
                stacklevel=2,
            )
