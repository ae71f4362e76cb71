"""Record statistics of the learned masks of a model, over any number of forward passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask, MaskStatistics


@contextmanager
def mask_statistics(model: nn.Module) -> Iterator[dict[str, MaskStatistics]]:
    """Record the masks of every forward pass inside the context, in training and in evaluation.

    Nested contexts all record.

    Yields:
        the statistics of each site with a learned mask, by the name of the site, in order of execution.
    """
    masks: dict[str, Any] = {site.name: site.module for site in sites(model) if isinstance(site.module, LearnedMask)}
    recorded = {name: MaskStatistics() for name in masks}
    for name, module in masks.items():
        module.statistics += (recorded[name],)
    try:
        yield recorded
    finally:
        for module in masks.values():
            module.statistics = module.statistics[:-1]


def mean_statistics(recorded: dict[str, MaskStatistics]) -> dict[str, float]:
    """Return the mean over sites of each statistic, as in the source; empty without masks."""
    if not recorded:
        return {}
    means = [statistics.means() for statistics in recorded.values()]
    return {name: sum(mean[name] for mean in means) / len(means) for name in means[0]}
