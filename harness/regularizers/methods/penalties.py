"""Penalties on attention: terms of the loss that observe heads, weights and outputs without changing them."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import Site, Stage

if TYPE_CHECKING:
    from torch import Tensor


def parse_layers(text: Any) -> str:
    """Return which layers are observed: ``all``, ``first``, ``last``, a number from 0, or a range such as ``0-2``."""
    layers = str(text)
    ends = [int(end) for end in layers.split("-")] if re.fullmatch(r"\d+(-\d+)?", layers) else []
    if layers not in ("all", "first", "last") and (not ends or ends[0] > ends[-1]):
        raise ValueError("expected all, first, last, a layer from 0, or layers such as 0-2")
    return layers


Layers = Annotated[str, BeforeValidator(parse_layers)]


class Observed(NamedTuple):
    """A forward pass of attention, at least in float32.

    Attributes:
        call: queries, keys, values and the mask, which includes causality.
        out: the regularized output of the heads (B, H, T, e).
        seen: keys that some query may attend to, float (B or 1, S): 0 for padding.
        counted: queries that are no padding, float (B or 1, T), as far as masks tell; see `AttentionPenalty.counted`.
    """

    call: Call
    out: Tensor
    seen: Tensor
    counted: Tensor

    def weights(self) -> Tensor:
        """Return the unregularized attention weights (B, H, T, S), 0 in rows of padding."""
        from dropbench.harness.attention.reference.sdpa import attention_weights  # which needs torch

        weights = attention_weights(self.call.q, self.call.k, mask=self.call.mask, scale=self.call.scale)
        return weights * self.counted[:, None, :, None]


class AttentionPenalty(AroundAttention):
    """Adds a term to the loss for the attention of each observed layer. A subclass implements `term`.

    The loss gets `weight` times the mean over the sites. Attention itself stays fused, and layers that are not observed
    stay as they are.
    """

    stage: ClassVar[Stage] = "penalty"
    strength: ClassVar[str] = "weight"
    adds_penalties: ClassVar[bool] = True
    result_version: ClassVar[int] = 2

    weight: float = Field(default=1.0, ge=0.0, description="weight of the penalty in the loss")
    layers: Layers = Field(default="all", description="which layers are observed: all, first, last, 3 or 0-2")

    _decoded: dict[str, Tensor] = PrivateAttr(default_factory=dict)
    """The tokens that are no padding in the last self-attention of a decoder, the queries of its cross attention."""

    def skip(self, site: Site) -> str | None:
        names = {"all": (0, site.depth - 1), "first": (0, 0), "last": (site.depth - 1, site.depth - 1)}
        ends = names.get(self.layers) or [int(end) for end in self.layers.split("-")]
        if not ends[0] <= site.layer <= ends[-1]:
            return f"layer {site.layer} is not observed (layers={self.layers})"
        return super().skip(site)

    @abstractmethod
    def term(self, observed: Observed, site: Site) -> Tensor:
        """Return the scalar to minimize for one site."""

    def counted(self, seen: Tensor, call: Call, site: Site) -> Tensor:
        """Return `Observed.counted`: of self-attention the keys that are seen, of cross attention those of its decoder.

        Queries whose mask is not known all count: a decoder's without a mask of its own, or not observed.
        """
        rows = call.q.shape[-2]
        if site.kind == "cross":
            known = self._decoded.get("tokens")
            if known is not None and known.shape[-1] == rows and len(known) in (1, len(call.q)):
                return known
        elif rows == call.k.shape[-2]:
            if site.kind == "decoder-self":
                self._decoded["tokens"] = seen
            return seen
        return seen.new_ones(1, rows)

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Attend by `inner`, and add the penalty to `Site.penalties`."""
        import torch

        from dropbench.harness.attention.reference.sdpa import without_autocast
        from dropbench.harness.regularizers.auxiliary_loss import add_penalty

        out = inner(call)
        if not torch.is_grad_enabled():
            return out
        dtype = torch.promote_types(call.q.dtype, torch.float32)
        call = call.with_merged_mask()
        with without_autocast(call.q.device.type):
            seen = _seen_keys(call.mask, call.k).to(dtype)
            counted = self.counted(seen, call, site)
            call = replace(call, q=call.q.to(dtype), k=call.k.to(dtype), v=call.v.to(dtype))
            observed = Observed(call, out.to(dtype), seen, counted)
            add_penalty(site, site.ratio * self.term(observed, site))
        return out


class Disagreement(AttentionPenalty):
    """The similarity of heads: their values, attended positions, or outputs (Li et al. 2018).

    With vectors x_h of the heads, it is Σ_i Σ_j cos(x_i, x_j) / H², the mean over tokens. For positions it is
    Σ_i Σ_j |A_i ⊙ A_j| / H², the sum over queries and keys and the mean over samples.
    """

    needs_heads: ClassVar[bool] = True

    of: Literal["subspaces", "positions", "outputs"] = Field(default="outputs", description="what is compared")

    @property
    def needs_values(self) -> bool:
        return self.of != "positions"

    def skip(self, site: Site) -> str | None:
        return "a single head has no other to differ from" if site.heads == 1 else super().skip(site)

    def term(self, observed: Observed, site: Site) -> Tensor:
        """Return −D of the paper."""
        if self.of == "positions":
            return observed.weights().mean(dim=1).square().sum(dim=(1, 2)).mean()
        if self.of == "subspaces":
            return _weighted_mean(_similarity(observed.call.v), observed.seen)
        return _weighted_mean(_similarity(observed.out), observed.counted)


class AttentionEntropy(AttentionPenalty):
    """Minus the entropy of attention rows, in nats, which keeps attention from collapsing to single keys.

    The entropy is that of Zhai et al. 2023 ("σReparam"): −Σ_j A_j log A_j, the mean over queries and heads.
    """

    weight: float = Field(default=0.01, ge=0.0, description="weight of the penalty in the loss")

    def term(self, observed: Observed, site: Site) -> Tensor:
        import torch

        weights = observed.weights()
        # The gradient of the entropy at 0 is infinite.
        entropy = torch.special.entr(weights.clamp_min(torch.finfo(weights.dtype).tiny)).sum(dim=-1)
        return -_weighted_mean(entropy.mean(dim=1), observed.counted)

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Attend and observe in one pass where a kernel can."""
        import torch

        from dropbench.harness.attention.dispatch import attention_and_entropy
        from dropbench.harness.regularizers.auxiliary_loss import add_penalty

        fuses = inner is plain and not call.dropout and torch.is_grad_enabled()
        if fuses and type(self).term is AttentionEntropy.term:
            observed = attention_and_entropy(call)
            if observed is not None:
                out, entropy = observed
                seen = _seen_keys(call.with_merged_mask().mask, call.k).to(call.q.dtype)
                counted = self.counted(seen, call, site)
                add_penalty(site, -site.ratio * _weighted_mean(entropy.mean(dim=1), counted))
                return out
        return super().around(call, site, inner)


class DiverseAttention(AttentionPenalty):
    """The mean cosine between the attention maps of heads, or between tokens (Chen et al. 2022, "Diverse-ViT").

    Over all pairs, each with itself included, as in the authors' code.
    """

    weight: float = Field(default=1e-4, ge=0.0, description="weight of the penalty in the loss")
    layers: Layers = Field(default="first", description="which layers are observed: all, first, last, 3 or 0-2")
    of: Literal["heads", "tokens"] = Field(default="heads", description="what is compared")

    @property
    def needs_values(self) -> bool:
        return self.of == "tokens"

    @property
    def needs_heads(self) -> bool:  # type: ignore[override]
        return self.of == "heads"

    def skip(self, site: Site) -> str | None:
        if self.of == "heads" and site.heads == 1:
            return "a single head has no other to differ from"
        return super().skip(site)

    def term(self, observed: Observed, site: Site) -> Tensor:
        """Return the mean cosine; prefix tokens are no patches and are left out."""
        if self.of == "heads":
            return _similarity(observed.weights().flatten(2)).mean()
        start = site.num_prefix_tokens
        tokens, counted = observed.out.transpose(1, 2).flatten(2)[:, start:], observed.counted[:, start:]
        return _similarity(tokens, counted / counted.sum(dim=1, keepdim=True).clamp_min(1.0)).mean()


def _similarity(x: Tensor, shares: Tensor | None = None) -> Tensor:
    """Return the mean cosine over all pairs along axis 1, which is ‖Σ_i s_i x_i / ‖x_i‖‖², without the last axis.

    `shares` (B, n) are the shares s_i of the items; None: all are equal.
    """
    from torch.nn.functional import normalize

    unit = normalize(x, dim=-1, eps=1e-8)
    mean = unit.mean(dim=1) if shares is None else (unit * shares[..., None]).sum(dim=1)
    return mean.square().sum(dim=-1)


def _weighted_mean(x: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of x (B, n) with weights (B or 1, n)."""
    weights = weights.expand(x.shape)
    return (x * weights).sum() / weights.sum().clamp_min(1.0)


def _seen_keys(mask: Tensor | None, k: Tensor) -> Tensor:
    """Return the keys that some query of some head may attend to, boolean (B or 1, S)."""
    from dropbench.harness.attention.reference.sdpa import allowed_keys

    if mask is None:
        return k.new_ones(1, k.shape[-2]).bool()
    allowed = allowed_keys(mask)
    allowed = allowed[(None,) * (4 - allowed.dim())]
    return allowed.flatten(1, 2).any(dim=1).expand(-1, k.shape[-2])
