"""Sparsity: the largest attention weights relative to uniform ones (DropAttention 6.3, Fig. 3)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dropbench.harness.analysis import Findings, measures
from dropbench.harness.analysis.figures import counts_by_site
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.regularizers.base import Site

BINS = 512
WIDTH = 2.0**-6


def sparsity(trained: Trained, options: Options) -> Findings:
    """Compute histograms of largest weight × sentence length over all real queries, per layer and head.

    A uniform row gives 1; a row with all weight on one key gives the sentence length. The arrays ``<site>.heads`` are
    the means per head.
    """
    histograms: dict[str, GrowingHistogram] = {}

    def probe(site: Site, weights: Tensor) -> None:
        values = measures.largest(weights, measures.lengths(weights, site.kind))
        real = measures.real_queries(weights, site.kind)
        histogram = histograms.setdefault(trained.label(site), GrowingHistogram(weights.shape[1]))
        histogram.add(values.transpose(0, 1).flatten(1), real.flatten())

    trained.evaluate(options, probe=probe)
    histograms = trained.in_order(histograms)
    means = {label: float(histogram.means().mean()) for label, histogram in histograms.items()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for label, histogram in histograms.items():
        arrays[f"{label}.counts"] = histogram.counts.numpy()
        arrays[f"{label}.edges"] = histogram.edges()
        arrays[f"{label}.heads"] = histogram.means()
    counted = {label: (histogram.edges(), histogram.counts.sum(0).numpy()) for label, histogram in histograms.items()}
    axis = "largest attention weight × sentence length (1: uniform)"
    scalars = {"mean": float(np.mean(list(means.values()))), **means}
    return Findings(scalars, arrays, lambda: counts_by_site(trained.title(), axis, counted, means))


class GrowingHistogram:
    """Histograms of non-negative values per head, with bins of equal width from 0.

    The width doubles when a value exceeds the last bin, so memory is constant. NaN is in no bin, but in the mean.

    Attributes:
        counts: (H, BINS).
        width: width of a bin.
        number: number of values per head.
    """

    def __init__(self, heads: int) -> None:
        self.counts = torch.zeros(heads, BINS, dtype=torch.float64)
        self.sums = torch.zeros(heads, dtype=torch.float64)
        self.number = 0
        self.width = WIDTH

    def add(self, values: Tensor, mask: Tensor) -> None:
        """Count the values (H, N) at which `mask` (N,) is True."""
        values = values[:, mask].double().cpu()
        self.sums += values.sum(dim=1)
        self.number += values.shape[1]
        without_nan = values.nan_to_num(nan=-1.0)
        while values.numel() and float(without_nan.max()) >= self.width * BINS:
            self.counts = torch.cat([self.counts.unflatten(1, (-1, 2)).sum(-1), torch.zeros_like(self.counts)], dim=1)
            self.counts = self.counts[:, :BINS]
            self.width *= 2
        for head, row in enumerate(without_nan):
            bins = (row[row >= 0] / self.width).long()
            self.counts[head] += torch.bincount(bins, minlength=BINS)

    def means(self) -> NDArray[np.float64]:
        """Return the exact mean of each head's values, (H,)."""
        means: NDArray[np.float64] = (self.sums / self.number).numpy()
        return means

    def edges(self) -> NDArray[np.float64]:
        """Return the edges of the bins, (BINS + 1,)."""
        return np.arange(BINS + 1, dtype=np.float64) * self.width
