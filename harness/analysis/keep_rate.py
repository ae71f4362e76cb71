"""The share of attention that a model's regularizer keeps, and statistics of learned masks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dropbench.harness.analysis import Findings, measures
from dropbench.harness.analysis.figures import bars
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.attention.call import Call
from dropbench.harness.models.mask_recorder import mask_statistics, mean_statistics
from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask

MIN_LOG_WEIGHT = -30.0
"""Log weights are clamped to this value, so that no kept weight underflows to 0 and counts as dropped."""


def keep_rate(trained: Trained, options: Options) -> Findings:
    """Measure the share of weights that training keeps at each site; the nominal share is 1 − ratio.

    Each forward pass draws once from the regularizer at the sites' ratios, on the trained model's attention weights.
    Only real queries and the keys that they may attend to count. The share may exceed 1 − ratio: rows that would lose
    all their keys keep them, and windows overlap or are cut off at edges.

    For learned masks, the result is the share of outputs that they keep in evaluation, and their other statistics
    (Learned Dropout, "Results"), as means over sites. For masks that are computed before all layers, ``flops`` is the
    share of the FLOPs of the feed-forward networks that evaluation needs token by token: their first matrix for tokens
    that keep an output, and the kept rows of the second, which has the same size.
    """
    counts: dict[str, list[float]] = {}
    nominal: dict[str, float] = {}

    def probe(site: Site, weights: Tensor) -> None:
        label = trained.label(site)
        kept, total = counts.setdefault(label, [0.0, 0.0])
        keep_mask, real = kept_weights(site, weights)
        counts[label] = [kept + float(keep_mask.sum()), total + float(real.sum())]
        nominal[label] = 1.0 - site.ratio

    with mask_statistics(trained.model) as masks:
        trained.evaluate(options, probe=None if masks else probe)
    learned = mean_statistics(masks)
    if masks:
        shares = {name: statistics.means()["kept"] for name, statistics in masks.items() if statistics.elements}
    else:
        shares = {label: kept / total for label, (kept, total) in trained.in_order(counts).items()}
    scalars = {"kept": float(np.mean(list(shares.values()))), **shares}
    if nominal:
        scalars["nominal"] = float(np.mean(list(nominal.values())))
    scalars |= {name: value for name, value in learned.items() if name != "kept"}
    learned_masks = [site.module for site in sites(trained.model) if isinstance(site.module, LearnedMask)]
    if masks and all(mask.is_precomputed for mask in learned_masks):
        scalars["flops"] = (learned["active"] + learned["kept"]) / 2
    arrays = {
        "sites": np.array(list(shares)),
        "kept": np.array(list(shares.values())),
        "nominal": np.array([nominal.get(label, np.nan) for label in shares]),
    }
    for name in learned:
        arrays[f"mask.{name}"] = np.array([statistics.means()[name] for statistics in masks.values()])
    axis = "share of outputs that the mask keeps" if masks else "share of attention weights that a draw keeps"
    return Findings(scalars, arrays, lambda: bars(trained.title(), axis, shares, nominal, "1 − drop ratio"))


def kept_weights(site: Site, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Draw once from a site's regularizer, as in training, for weights (B, H, T, S) that are not regularized.

    Returns:
        Two boolean masks (B, H, T, S): the real weights that the draw keeps, and all real weights.
    """
    real = (weights != 0) & measures.real_queries(weights, site.kind)[:, None, :, None]
    if site.regularizer is None or site.ratio == 0.0:
        return real, real
    # With unit vectors as keys and values, the logits are the queries and the output is the weights.
    logits = weights.float().log().clamp_min(MIN_LOG_WEIGHT)
    identity = torch.eye(weights.shape[-1], device=weights.device).expand(*weights.shape[:2], -1, -1)
    with torch.autocast(weights.device.type, enabled=False):
        regularized = site.regularizer.attend(Call(logits, identity, identity, weights != 0, scale=1.0), site)
    return (regularized != 0) & real, real
