"""How much of a model's attention a draw of its regularizer keeps, and what learned masks are like."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.analysis import Findings, Options, measures
from harness.analysis.figures import bars
from harness.analysis.trained import Trained
from harness.mask_statistics import mask_statistics, mean_statistics
from harness.site import Site

LEAST = -30.0
"""Log weights are cut off here, so that no kept weight is lost to underflow and taken for a dropped one."""


def keep_rate(trained: Trained, options: Options) -> Findings:
    """The share of weights that training keeps at each site, against the nominal one, 1 − ratio.

    Each forward pass draws once from the regularizer at the sites' ratios, on the attention weights that the trained
    model has; only real queries and keys that they may attend to are counted. Rows that would have lost all their keys
    keep them, windows overlap and are cut off at edges, so that more than 1 − ratio may be kept.

    Of a learned mask: the share of outputs that it keeps in evaluation, and its author's other figures (Learned
    Dropout, "Results"), as means over sites.
    """
    counts: dict[str, list[float]] = {}
    nominal: dict[str, float] = {}

    def probe(site: Site, weights: Tensor) -> None:
        label = trained.label(site)
        kept, total = counts.setdefault(label, [0.0, 0.0])
        drawn, real = kept_weights(site, weights)
        counts[label] = [kept + float(drawn.sum()), total + float(real.sum())]
        nominal[label] = 1.0 - site.ratio

    with mask_statistics(trained.model) as masks:
        trained.evaluate(options, probe=None if masks else probe)
    rates = {
        trained.label(site): counts[trained.label(site)] for site in trained.sites if trained.label(site) in counts
    }
    shares = {label: kept / total for label, (kept, total) in rates.items()}
    learned = mean_statistics(masks)
    if masks:
        shares = {name: statistics.means()["kept"] for name, statistics in masks.items() if statistics.elements}
    scalars = {"kept": float(np.mean(list(shares.values()))), **shares}
    if nominal:
        scalars["nominal"] = float(np.mean(list(nominal.values())))
    scalars |= {name: value for name, value in learned.items() if name != "kept"}
    arrays = {
        "sites": np.array(list(shares)),
        "kept": np.array(list(shares.values())),
        "nominal": np.array([nominal.get(label, np.nan) for label in shares]),
    }
    for name in learned:
        arrays[f"mask.{name}"] = np.array([statistics.means()[name] for statistics in masks.values()])
    what = "share of outputs that the mask keeps" if masks else "share of attention weights that a draw keeps"
    return Findings(scalars, arrays, lambda: bars(trained.title(), what, shares, nominal, "1 − drop ratio"))


def kept_weights(site: Site, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Draw once from a site's regularizer, as training does.

    Args:
        site: the site, with its regularizer and ratio.
        weights: (B, H, T, S), not regularised.

    Returns:
        boolean (B, H, T, S), twice: which weights the draw keeps, and which there are.
    """
    rows = measures.real_queries(weights, site.kind)[:, None, :, None]
    real = (weights != 0) & rows
    if site.regularizer is None or site.ratio == 0.0:
        return real, real
    # Logits are their own product with unit vectors, and what comes out of unit vectors as values are the weights.
    logits = weights.float().log().clamp_min(LEAST)
    unit = torch.eye(weights.shape[-1], device=weights.device).expand(*weights.shape[:2], -1, -1)
    with torch.autocast(weights.device.type, enabled=False):
        drawn = site.regularizer.attend(logits, unit, unit, site, mask=weights != 0, scale=1.0)
    return (drawn != 0) & real, real
