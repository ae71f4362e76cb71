"""Regularizers of weight matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import Site, SiteKind, Stage, drop_ratio

if TYPE_CHECKING:
    from torch import nn


class SigmaReparam(PlainAttention):
    """Reparametrizes weight matrices: Ŵ = γ · W / σ(W) with a learned scalar γ, in evaluation too.

    (Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy Collapse"). σ(W) is
    the largest singular value, by one step of power iteration per forward pass.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"weight"})
    stage: ClassVar[Stage] = "weight"

    gamma: Literal["one", "spectral-norm"] = Field(default="spectral-norm", description="initial value of γ")

    def site_module(self, site: Site) -> nn.Module | None:
        from dropbench.harness.regularizers.methods.weight_modules import SigmaReparamWeight  # which needs torch

        return SigmaReparamWeight(self.gamma) if site.kind == "weight" else None


class Mixout(PlainAttention):
    """Replaces the weights of random inputs by their initial values (Lee et al. 2020, "Mixout").

    In training, W becomes (m ⊙ W + (1 − m) ⊙ W₀ − p · W₀) / (1 − p), with m ~ Bernoulli(1 − p) for each input of the
    matrix, and the initial weights W₀.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"weight"})
    stage: ClassVar[Stage] = "weight"
    draws_per_batch: ClassVar[bool] = True

    ratio: float = drop_ratio(0.9)

    def site_module(self, site: Site) -> nn.Module | None:
        from dropbench.harness.regularizers.methods.weight_modules import MixoutWeight  # which needs torch

        return MixoutWeight(site) if site.kind == "weight" else None


class WeightOrthogonality(PlainAttention):
    """Adds a penalty for matrices of queries, keys and values that scale some directions more than others.

    (Chen et al. 2022, "The Principle of Diversity", the weight level; `Loss_condition_orth_weight` in the authors'
    ``reg.py``.) The loss grows by `alpha` times the sum over all matrices W of (λ_max − λ_min)², with the largest and
    the smallest eigenvalue of W Wᵀ, each by one step of power iteration from a random vector.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"weight"})
    stage: ClassVar[Stage] = "weight"
    strength: ClassVar[str] = "alpha"
    result_version: ClassVar[int] = 2

    alpha: float = Field(default=5e-4, ge=0.0, description="coefficient of the penalty")

    def skip(self, site: Site) -> str | None:
        if site.kind == "weight" and not site.projections:
            return "it computes no queries, keys or values, or not as three matrices of equal size"
        return super().skip(site)

    def site_module(self, site: Site) -> nn.Module | None:
        from dropbench.harness.regularizers.methods.weight_modules import OrthogonalityPenalty  # which needs torch

        return OrthogonalityPenalty(site) if site.kind == "weight" else None
