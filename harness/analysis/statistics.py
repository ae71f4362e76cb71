"""Entropy, Div and Disagreement of a trained model's attention: one number a sample and layer (and head)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.analysis import Findings, Options, measures
from harness.analysis.figures import histograms
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.site import Site

Measure = Callable[[Tensor], Tensor]
"""Weights (B, H, T, S) → values (B, T), or (B, H, T) by head."""


def entropy(trained: Trained, options: Options) -> Findings:
    """The entropy of each head's weights, averaged over heads (DropKey, Fig. 4; DropAttention, Fig. 2a).

    Of the class token where the site has one, as in DropKey; else of all real queries, averaged, as in DropAttention.
    """
    recorder = Recorder(trained, measures.entropy, class_token=True)
    trained.evaluate(options, probe=recorder)
    whose = "the class token's" if recorder.of_class_token == {True} else "all queries'"
    even = f"; even over {(keys := min(recorder.keys))} keys: {math.log(keys):.3f}" if len(recorder.keys) == 1 else ""
    return _findings(trained, recorder, f"entropy of {whose} attention, mean over heads (nats{even})")


def diversity(trained: Trained, options: Options) -> Findings:
    """Div over the heads of each query, averaged over the real queries (DropAttention, Eq. 11, Fig. 2c)."""
    recorder = Recorder(trained, measures.diversity)
    trained.evaluate(options, probe=recorder)
    return _findings(trained, recorder, "Div = ‖AAᵀ − I‖² over heads, mean over queries (large: heads overlap)")


def disagreement(trained: Trained, options: Options) -> Findings:
    """Disagreement over the heads of each query, averaged over the real queries (DropAttention, Eq. 12, Fig. 2b)."""
    recorder = Recorder(trained, measures.disagreement)
    trained.evaluate(options, probe=recorder)
    return _findings(trained, recorder, "Disagreement: mean cosine between heads, mean over queries (1: all alike)")


def _findings(trained: Trained, recorder: Recorder, axis: str) -> Findings:
    values = recorder.values()
    means = {label: float(found.mean()) for label, found in values.items()}
    every = list(means.values())
    scalars = {"mean": float(np.mean(every)), "last": every[-1], **means}
    shown = {label: found if found.ndim == 1 else found.mean(axis=1) for label, found in values.items()}
    return Findings(scalars, values, lambda: histograms(trained.title(), axis, shown))


class Recorder:
    """A probe that keeps one number (or one a head) for each sample and site.

    Args:
        trained: the model that is evaluated.
        measure: what of the weights.
        class_token: keep the class token's alone where a site has one.

    Attributes:
        of_class_token: whether what was kept is the class token's, for the sites seen.
        keys: the numbers of keys seen.
    """

    def __init__(self, trained: Trained, measure: Measure, *, class_token: bool = False) -> None:
        self.trained, self.measure, self.class_token = trained, measure, class_token
        self.found: dict[str, list[Tensor]] = {}
        self.of_class_token: set[bool] = set()
        self.keys: set[int] = set()

    def __call__(self, site: Site, weights: Tensor) -> None:
        """Measure the weights (B, H, T, S) of a forward pass."""
        values = self.measure(weights)
        rows = measures.real_queries(weights, site.kind)
        first = self.class_token and has_class_token(site, *weights.shape[2:])
        self.of_class_token.add(first)
        self.keys.add(weights.shape[3])
        if first:
            rows = torch.zeros_like(rows)
            rows[:, 0] = True
        if values.dim() == 3:
            rows = rows[:, None]
        # Selected and not multiplied: what is left out may be NaN.
        mean = values.where(rows, 0.0).sum(dim=-1, dtype=torch.float64) / rows.sum(dim=-1)
        self.found.setdefault(self.trained.label(site), []).append(self.by_sample(mean).cpu())

    def by_sample(self, values: Tensor) -> Tensor:
        """(B, …) → the same; windows and places of one sample, which attention takes for samples, are averaged."""
        parts, rest = divmod(len(values), max(1, self.trained.batch_size))
        return values if rest or parts <= 1 else values.unflatten(0, (-1, parts)).mean(dim=1)

    def values(self) -> dict[str, NDArray[np.float64]]:
        """By site, (N,) or (N, H), in order of execution.

        Raises:
            InputError: no attention was computed.
        """
        if not self.found:
            raise InputError(f"model '{self.trained.trial.model}' computed no attention that could be looked at")
        order = [self.trained.label(site) for site in self.trained.sites]
        return {label: torch.cat(self.found[label]).numpy() for label in order if label in self.found}


def has_class_token(site: Site, queries: int, keys: int) -> bool:
    """Whether the first of a site's queries is the class token: the keys have one, and the queries are the keys."""
    return site.kind == "class" or (site.prefix > 0 and site.kind in measures.SELF and queries == keys)
