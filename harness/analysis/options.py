"""Options that every analysis takes."""

from __future__ import annotations

from dataclasses import dataclass

from dropbench.harness.trials.task import Split


@dataclass(frozen=True)
class Options:
    """The samples that an analysis evaluates.

    Attributes:
        split: split of the data set.
        samples: number of samples, drawn at random but the same for every trial. None: the default of the analysis,
            usually all.
    """

    split: Split = "test"
    samples: int | None = None
