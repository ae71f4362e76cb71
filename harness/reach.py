"""`Reach`: which of a model's regularized sites attend, so that an idle one is named."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

PASSES = 50
"""Training passes after which sites that have not attended are named: some models drop layers at random."""
NAMED = 8
"""Names of sites in a message; the others are counted."""


class Reach:
    """Counts the calls of attention at the sites of one model in training.

    It warns once: after `PASSES` calls at one site, or as many forward passes of a module without a call, it names the
    sites that have had none.

    Attributes:
        calls: the calls by site.
        in_evaluation: whether calls in evaluation count, too; attention modules then do not use their original forward.
    """

    def __init__(self, names: Iterable[str], *, in_evaluation: bool = False) -> None:
        self.calls = dict.fromkeys(names, 0)
        self.idle = dict.fromkeys(self.calls, 0)
        self.in_evaluation = in_evaluation
        self.warned = in_evaluation  # the caller reads `missing`

    @property
    def missing(self) -> list[str]:
        """The sites without a call."""
        return [name for name, calls in self.calls.items() if not calls]

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
        missing = self.missing
        if missing and not self.warned:
            self.warned = True
            warnings.warn(
                f"{len(missing)} of {len(self.calls)} regularized sites have not attended in {PASSES} training passes:"
                f" {first_names(missing)}: nothing is regularized there; exclude them (exclude=[…]), or say that this"
                " is expected (unreached='ignore')",
                stacklevel=2,
            )


def first_names(names: Sequence[str]) -> str:
    """Return names for a message, at most `NAMED` of them."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
