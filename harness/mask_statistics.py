"""What the masks of Learned Dropout are like: the figures that its author logged (Yan 2024, "Results")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor, nn

from harness.binding import sites
from harness.learned_mask import LearnedMask, entropy


@dataclass
class MaskStatistics:
    """Sums over the elements of all masks that one site computed; `means` divides them.

    Attributes:
        entropy: −M log2 M.
        l1_norm: as the penalty has it: M²/2, or |M|.
        near_one: M > 0.9.
        near_zero: M < 0.1.
        kept: the rounded mask, which multiplies the output: the share of ones.
        elements: how many elements there were.
    """

    entropy: Tensor | float = 0.0
    l1_norm: Tensor | float = 0.0
    near_one: Tensor | float = 0.0
    near_zero: Tensor | float = 0.0
    kept: Tensor | float = 0.0
    elements: int = 0

    def add(self, values: Tensor, rounded: Tensor, l1_norm: Tensor) -> None:
        """Count one forward pass: the mask, the rounded mask, and the L1 norm as a mean; nothing waits for a device."""
        count = values.numel()
        for name, mean in (
            ("entropy", entropy(values)),
            ("l1_norm", l1_norm),
            ("near_one", (values > 0.9).sum() / max(1, count)),
            ("near_zero", (values < 0.1).sum() / max(1, count)),
            ("kept", rounded.sum() / max(1, count)),
        ):
            setattr(self, name, getattr(self, name) + mean.double() * count)
        self.elements += count

    def absorb(self, other: MaskStatistics) -> None:
        """Count what another one has counted."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def means(self) -> dict[str, float]:
        """The mean over all elements, for each figure; NaN where there were none."""
        names = [field.name for field in fields(self) if field.name != "elements"]
        return {name: float(getattr(self, name)) / self.elements if self.elements else float("nan") for name in names}


@contextmanager
def mask_statistics(model: nn.Module) -> Iterator[dict[str, MaskStatistics]]:
    """While it is open, the masks of every forward pass are counted, in training and in evaluation.

    Where one is open already, both count.

    Yields:
        the statistics of each site with a learned mask, by the site's name, in order of execution.
    """
    masks: dict[str, Any] = {site.name: site.module for site in sites(model) if isinstance(site.module, LearnedMask)}
    counted = {name: MaskStatistics() for name in masks}
    outer = {name: module.statistics for name, module in masks.items()}
    for name, module in masks.items():
        module.statistics = counted[name]
    try:
        yield counted
    finally:
        for name, module in masks.items():
            module.statistics = outer[name]
            if outer[name] is not None:
                outer[name].absorb(counted[name])


def mean_statistics(counted: dict[str, MaskStatistics]) -> dict[str, float]:
    """The mean over sites of each figure, as the source reports them; empty where there are no masks."""
    if not counted:
        return {}
    means = [statistics.means() for statistics in counted.values()]
    return {name: sum(mean[name] for mean in means) / len(means) for name in means[0]}
