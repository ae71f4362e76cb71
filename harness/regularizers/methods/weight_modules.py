"""The modules of the regularizers in `weights`, one per weight matrix, and of `attribution`, one per site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dropbench.harness.attention.reference.sdpa import without_autocast
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.auxiliary_loss import never_collected, recomputing
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.output import SiteModule, WeightModule

MAX_USES = 256
"""Uses of a weight in training whose penalty may wait to be added to a loss; a pass may use a weight several times."""


class SigmaReparamWeight(WeightModule):
    """γ · W / σ(W) (Zhai et al. 2023); σ by power iteration from the last right singular vector u."""

    u: Tensor | None

    def __init__(self, initial: Literal["one", "spectral-norm"]) -> None:
        super().__init__()
        self.initial = initial
        self.gamma = nn.Parameter(torch.ones(()))
        self.register_buffer("u", None)

    @torch.no_grad()
    def right_inverse(self, weight: Tensor) -> Tensor:
        """Start with the exact singular vector of a weight; return the weight. torch calls it when a weight is set."""
        singular = torch.linalg.svd(
            weight.detach().to(torch.promote_types(weight.dtype, torch.float32)), full_matrices=False
        )
        self.u = singular.Vh[0].to(weight.dtype)
        if self.initial == "spectral-norm":
            self.gamma.copy_(singular.S[0])
        return weight

    def forward(self, weight: Tensor) -> Tensor:
        """Return Ŵ; in training, keep the vector of this step of power iteration.

        The gradient passes through σ = vᵀ W u, not through u and v.
        """
        with without_autocast(weight.device.type):  # the buffers have the dtype of the weight
            return weight * (self.gamma / self._norm(weight))

    def _norm(self, weight: Tensor) -> Tensor:
        assert self.u is not None
        with torch.no_grad():
            if recomputing():  # a forward pass of activation checkpointing must equal the first one
                v: Tensor = vars(self)["v"]
                u = self.u
            else:
                v = normalize(weight @ self.u, dim=0)
                u = normalize(weight.T @ v, dim=0)
            if self.training:
                self.u = u  # a new tensor: the graph of an earlier pass may hold the last one
                vars(self)["v"] = v
        norm: Tensor = v @ (weight @ u)
        return norm


class MixoutWeight(WeightModule):
    """A mix of a weight with its initial values (Lee et al. 2020)."""

    initial: Tensor | None

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.mixed_site = site
        self.register_buffer("initial", None)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Note the initial weight, and return it. torch calls it when a weight is set."""
        self.initial = weight.detach().clone()
        return weight

    def forward(self, weight: Tensor) -> Tensor:
        ratio, axis = self.mixed_site.ratio, self.mixed_site.input_axis
        if not self.training or ratio == 0.0:
            return weight
        assert self.initial is not None
        shape = [size if each == axis else 1 for each, size in enumerate(weight.shape)]
        kept = (torch.rand(shape, device=weight.device) >= ratio).to(weight.dtype) / (1.0 - ratio)
        return self.initial + kept * (weight - self.initial)


class OrthogonalityPenalty(WeightModule):
    """Leaves a weight as it is, and adds a penalty for each matrix of queries, keys or values that it stacks."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.penalized_site = site
        self.uncollected = 0

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight, and note it if the model is trained.

        Raises:
            InputError: nothing has collected the penalties of many uses of the weight.
        """
        if recomputing():  # a forward pass of activation checkpointing, whose loss is known
            return weight
        observes = self.training and self.penalized_site.ratio > 0.0
        vars(self)["observed"] = weight if observes else None
        if observes and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self.uncollected += 1
            if self.uncollected > MAX_USES:
                raise never_collected(self.penalized_site, f"{MAX_USES} uses in training")
        return weight

    def in_evaluation(self, weight: Tensor) -> Tensor:
        return weight

    def penalty(self, step: int) -> Tensor | None:
        """Return α Σ (λ_max − λ_min)² of the weight in the last forward pass; None if there was none in training.

        Raises:
            InputError: FSDP has freed the weight after the forward pass.
        """
        weight: Tensor | None = vars(self).pop("observed", None)
        self.uncollected = 0
        if weight is None:
            return None
        is_freed = weight.device.type != "meta" and weight.numel() and not weight.untyped_storage().size()
        if is_freed or weight.dim() < 2:  # a shard
            raise InputError(
                f"{self.penalized_site.name}: FSDP frees weights after the forward pass, and weight-orthogonality needs"
                " them for the loss: use `fully_shard(…, reshard_after_forward=False)`, or DistributedDataParallel"
            )
        rows = weight if self.penalized_site.input_axis == 1 else weight.T
        with without_autocast(weight.device.type):
            rows = rows.to(torch.promote_types(weight.dtype, torch.float32))
            parts = rows.chunk(self.penalized_site.projections)
            spreads = [eigenvalue_spread(part, *torch.rand(2, len(part)).to(part)) for part in parts]
            return self.penalized_site.ratio * torch.stack(spreads).square().sum()


def eigenvalue_spread(weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Estimate λ_max − λ_min of W Wᵀ by one step of power iteration for each, as Chen et al. 2022 do.

    The largest eigenvalue is estimated from the vector `first`, and from `second` that of W Wᵀ − λ_max I with the
    largest absolute value, which is λ_min − λ_max. Gradients flow through all of it.

    Args:
        weight: W (n, m).
        first: (n).
        second: (n).
    """

    def rayleigh(matrix: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        x = matrix(start)
        return (matrix(x) @ x) / (x @ x).clamp_min(torch.finfo(x.dtype).tiny)

    def gram(x: Tensor) -> Tensor:
        return weight @ (weight.T @ x)

    largest = rayleigh(gram, first)
    return -rayleigh(lambda x: gram(x) - largest * x, second)


class DropGenerator(SiteModule):
    """Chooses the keys that `attribution.AttendOut` drops, by one learned number w per head, at first 0.

    A key s of n allowed ones is dropped with probability p · n · softmax_s(w · A_s / max A), at most `MAXIMUM`, where A
    are the attention weights of a row. At w = 0 all keys are dropped with probability p.
    """

    MAXIMUM = 0.95
    changes_output = False

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads))

    def forward(self, x: Tensor, **unused: Any) -> Tensor:
        """Return the output of attention as it is."""
        return x

    def draw(self, weights: Tensor, allowed: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
        """Return the dropped keys, boolean (B, H, T, S), and the log-probability of all of these decisions, a scalar.

        `weights` are the attention weights (B, H, T, S), `allowed` the keys that a query may attend to, boolean.
        """
        relative = weights / weights.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        scores = (self.weight.to(weights.dtype)[:, None, None] * relative).masked_fill(~allowed, float("-inf"))
        empty = ~allowed.any(dim=-1, keepdim=True)
        share = scores.masked_fill(empty, 0.0).softmax(dim=-1)
        number = allowed.sum(dim=-1, keepdim=True).to(weights.dtype)
        probability = (ratio * number * share).clamp(torch.finfo(weights.dtype).tiny, self.MAXIMUM)
        drop_mask = (torch.rand_like(probability) < probability) & allowed
        log_probs = torch.where(drop_mask, probability.log(), torch.log1p(-probability)) * allowed
        return drop_mask, log_probs.sum()
