"""Sparsity: how large the largest weights are, against even ones (DropAttention 6.3, Fig. 3)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.analysis import Findings, Options, measures
from harness.analysis.figures import counts_by_site
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.site import Site

BINS = 512
WIDTH = 2.0**-6


def sparsity(trained: Trained, options: Options) -> Findings:
    """The largest weight of each head × the sentence length, of every real query; the histogram by layer and head.

    An even row gives 1, a row with all weight on one key the sentence length. ``<site>.heads`` in the results are the
    heads' means.
    """
    found: dict[str, GrowingHistogram] = {}

    def probe(site: Site, weights: Tensor) -> None:
        values = measures.largest(weights, measures.lengths(weights, site.kind))
        rows = measures.real_queries(weights, site.kind)
        histogram = found.setdefault(trained.label(site), GrowingHistogram(weights.shape[1]))
        histogram.add(values.transpose(0, 1).flatten(1), rows.flatten())

    trained.evaluate(options, probe=probe)
    if not found:
        raise InputError(f"model '{trained.trial.model}' computed no attention that could be looked at")
    found = {label: found[label] for label in map(trained.label, trained.sites) if label in found}
    means = {label: float(histogram.means().mean()) for label, histogram in found.items()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for label, histogram in found.items():
        arrays[f"{label}.counts"] = histogram.counts.numpy()
        arrays[f"{label}.edges"] = histogram.edges()
        arrays[f"{label}.heads"] = histogram.means()
    shown = {label: (histogram.edges(), histogram.counts.sum(0).numpy()) for label, histogram in found.items()}
    axis = "largest attention weight × sentence length (1: even)"
    return Findings(
        {"mean": float(np.mean(list(means.values()))), **means},
        arrays,
        lambda: counts_by_site(trained.title(), axis, shown, means),
    )


class GrowingHistogram:
    """Counts of non-negative values by head, in bins of equal width from 0, which double when a value is beyond them.

    So any number of values takes the same memory. NaN is in no bin, but in the mean.

    Attributes:
        counts: (H, BINS).
        width: of a bin.
    """

    def __init__(self, heads: int) -> None:
        self.counts = torch.zeros(heads, BINS, dtype=torch.float64)
        self.sums = torch.zeros(heads, dtype=torch.float64)
        self.number = 0
        self.width = WIDTH

    def add(self, values: Tensor, which: Tensor) -> None:
        """Count values (H, N) where `which` (N,) says so."""
        values = values[:, which].double().cpu()
        self.sums += values.sum(dim=1)
        self.number += values.shape[1]
        real = values.nan_to_num(nan=-1.0)
        while values.numel() and float(real.max()) >= self.width * BINS:
            self.counts = torch.cat([self.counts.unflatten(1, (-1, 2)).sum(-1), torch.zeros_like(self.counts)], dim=1)
            self.counts = self.counts[:, :BINS]
            self.width *= 2
        for head, row in enumerate(real):
            bins = (row[row >= 0] / self.width).long()
            self.counts[head] += torch.bincount(bins, minlength=BINS)

    def means(self) -> NDArray[np.float64]:
        """The exact mean of each head's values, (H,)."""
        means: NDArray[np.float64] = (self.sums / self.number).numpy()
        return means

    def edges(self) -> NDArray[np.float64]:
        """The edges of the bins, (BINS + 1,)."""
        return np.arange(BINS + 1, dtype=np.float64) * self.width
