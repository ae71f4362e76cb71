"""Entropy, Div and Disagreement of a trained model's attention: one value per sample and layer (and head)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dropbench.harness.analysis import Findings, measures
from dropbench.harness.analysis.figures import histograms
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.regularizers.base import Site

Measure = Callable[[Tensor], Tensor]
"""Weights (B, H, T, S) → values (B, T), or (B, H, T) per head."""


def entropy(trained: Trained, options: Options) -> Findings:
    """Compute the entropy of each head's weights (DropKey, Fig. 4; DropAttention, Fig. 2a).

    If the site has a class token, its row is used, as in DropKey; otherwise the mean over all real queries, as in
    DropAttention.
    """
    recorder = AttentionRecorder(trained, measures.entropy, class_token=True)
    trained.evaluate(options, probe=recorder)
    queries = "the class token's" if recorder.of_class_token == {True} else "all queries'"
    uniform = [f"; uniform over {number} keys: {math.log(number):.3f}" for number in recorder.num_keys]
    maximum = uniform[0] if len(uniform) == 1 else ""
    return _findings(trained, recorder, f"entropy of {queries} attention, mean over heads (nats{maximum})")


def diversity(trained: Trained, options: Options) -> Findings:
    """Compute Div over the heads of each query, averaged over queries (DropAttention, Eq. 11, Fig. 2c)."""
    recorder = AttentionRecorder(trained, measures.diversity)
    trained.evaluate(options, probe=recorder)
    return _findings(trained, recorder, "Div = ‖AAᵀ − I‖² over heads, mean over queries (large: heads overlap)")


def disagreement(trained: Trained, options: Options) -> Findings:
    """Compute Disagreement over the heads of each query, averaged over queries (DropAttention, Eq. 12, Fig. 2b)."""
    recorder = AttentionRecorder(trained, measures.disagreement)
    trained.evaluate(options, probe=recorder)
    return _findings(trained, recorder, "Disagreement: mean cosine between heads, mean over queries (1: identical)")


def _findings(trained: Trained, recorder: AttentionRecorder, axis: str) -> Findings:
    values = recorder.values()
    means = {label: float(array.mean()) for label, array in values.items()}
    site_means = list(means.values())
    scalars = {"mean": float(np.mean(site_means)), "last": site_means[-1], **means}
    per_sample = {label: array if array.ndim == 1 else array.mean(axis=1) for label, array in values.items()}
    return Findings(scalars, values, lambda: histograms(trained.title(), axis, per_sample))


class AttentionRecorder:
    """A probe that records a measure of the attention of each sample (or one per head) at each site.

    With `class_token`, only its row is recorded, at sites that have one.

    Attributes:
        recorded: recorded values by site label, one tensor per forward pass.
        of_class_token: whether the values of the recorded sites are those of the class token.
        num_keys: the numbers of keys of the recorded sites.
    """

    def __init__(self, trained: Trained, measure: Measure, *, class_token: bool = False) -> None:
        self.trained, self.measure, self.class_token = trained, measure, class_token
        self.recorded: dict[str, list[Tensor]] = {}
        self.of_class_token: set[bool] = set()
        self.num_keys: set[int] = set()

    def __call__(self, site: Site, weights: Tensor) -> None:
        """Record the measure of the weights (B, H, T, S) of a forward pass."""
        values = self.measure(weights)
        queries = measures.real_queries(weights, site.kind)
        class_token_only = self.class_token and has_class_token(site, *weights.shape[2:])
        self.of_class_token.add(class_token_only)
        self.num_keys.add(weights.shape[3])
        if class_token_only:
            queries = torch.arange(queries.shape[1], device=queries.device).expand_as(queries) == 0
        if values.dim() == 3:
            queries = queries[:, None]
        # `where` instead of a product, because excluded values may be NaN.
        mean = values.where(queries, 0.0).sum(dim=-1, dtype=torch.float64) / queries.sum(dim=-1)
        # Attention treats windows of a sample as samples.
        windows, remainder = divmod(len(mean), max(1, self.trained.batch_size))
        if windows > 1 and not remainder:
            mean = mean.unflatten(0, (-1, windows)).mean(dim=1)
        self.recorded.setdefault(self.trained.label(site), []).append(mean.cpu())

    def values(self) -> dict[str, NDArray[np.float64]]:
        """Return the recorded values by site label, (N,) or (N, H); raises InputError if there are none."""
        return {label: torch.cat(values).numpy() for label, values in self.trained.in_order(self.recorded).items()}


def has_class_token(site: Site, num_queries: int, num_keys: int) -> bool:
    """Return whether the first query of a site is the class token."""
    self_attention = site.kind in measures.SELF_ATTENTION and num_queries == num_keys
    return site.kind == "class" or (site.num_prefix_tokens > 0 and self_attention)
