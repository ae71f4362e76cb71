"""A subclass of fairseq's MultiheadAttention that calls `attend` in training."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, cast

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn
from torch.nn import functional as F

from dropbench.adapters.libraries.torch_attention import merge_masks
from dropbench.harness.attention.reference.sdpa import attention_weights, masked_softmax
from dropbench.harness.interception.models import InterceptionPatch
from dropbench.harness.models.adapter import (
    Adapter,
    Patch,
    can_use_original_forward,
    has_no_hooks,
    number_layers,
    patched_class,
)
from dropbench.harness.models.attention import attend, attend_logits
from dropbench.harness.models.head_skipping import is_plain
from dropbench.harness.regularizers.around import replaces_dropout
from dropbench.harness.regularizers.auxiliary_loss import recomputing
from dropbench.harness.regularizers.base import Site, SiteKind

State = dict[str, dict[str, Tensor | None]]


@patched_class(MultiheadAttention)
class RegularizedFairseqAttention(MultiheadAttention):  # type: ignore[misc]
    """Self and cross attention with fairseq's masks.

    Evaluation and beam search use fairseq's own code. So does training without a regularizer, for equality bit for bit:
    fairseq sums gradients of biases in another order. Weights returned in training are those before dropping.
    """

    site: Site
    skip_embed_dim_check: bool

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: State | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with fairseq's shapes and masks: query (T, B, C), key and value (S, B, C), padding mask (B, S)."""
        undropped = self.site.regularizer is None or self.site.ratio == 0.0
        own_dropout: float = self.dropout_module.p
        as_it_came = undropped and has_no_hooks(self) and not (own_dropout and replaces_dropout(self.site))
        if as_it_came and self.training and self.site.reach is not None and not recomputing():
            self.site.reach.note_call(self.site.name)
        if before_softmax or can_use_original_forward(self) or as_it_came:
            out: tuple[Tensor, Tensor | None] = super().forward(
                query, key, value, key_padding_mask, incremental_state, need_weights, static_kv, attn_mask,
                before_softmax, need_head_weights,
            )  # fmt: skip
            return out
        needed = need_weights or need_head_weights
        if incremental_state is not None:
            inputs = (key, value, key_padding_mask, incremental_state, False, static_kv, attn_mask)
            heads, weights = self._from_logits(query, *inputs, need_weights=needed)
        else:
            assert key is not None
            assert value is not None
            q, k, v = self._projected(query, key, value)
            padding = key_padding_mask.bool() if key_padding_mask is not None and key_padding_mask.dim() else None
            mask = merge_masks(attn_mask, padding, q.dtype)
            heads = attend(q, k, v, self.site, training=self.training, mask=mask, dropout=own_dropout)
            weights = attention_weights(q, k, mask=mask) if needed else None
        joined: Tensor = self.out_proj(heads.permute(2, 0, 1, 3).flatten(2))
        if weights is not None:
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)
        return joined, weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> Iterator[Tensor]:
        """Yield q (B, H, T, d), k and v (B, H, S, d); projections of the same input are one product."""
        pairs = [(query, self.q_proj), (key, self.k_proj), (value, self.v_proj)]
        is_joint = all(is_plain(projection) for _, projection in pairs)
        for _, group in groupby(pairs, key=lambda pair: id(pair[0] if is_joint else pair[1])):
            (x, *_), projections = zip(*group, strict=True)
            joint = projections[0](x) if len(projections) == 1 else _project_jointly(x, projections)
            # (T, B, parts · C) → parts of (B, H, T, d)
            for part in joint.unflatten(-1, (len(projections), self.num_heads, -1)).unbind(-3):
                yield part.permute(1, 2, 0, 3)

    def _from_logits(self, query: Tensor, *inputs: Any, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Return outputs (B, H, T, d) and weights (B, H, T, S) from fairseq's logits, which handle caches and beams."""
        skip = self.skip_embed_dim_check
        self.skip_embed_dim_check = True  # avoids torch's function, which returns no logits
        try:
            logits, v = super().forward(query, *inputs, before_softmax=True)
        finally:
            self.skip_embed_dim_check = skip
        logits = logits.view(query.shape[1], self.num_heads, *logits.shape[1:])
        v = v.view(-1, self.num_heads, *v.shape[1:])
        # In beam search the values of a sentence are stored once for all its beams.
        v = v.repeat_interleave(len(logits) // len(v), dim=0)
        allowed = logits != float("-inf")  # NaN is allowed, and stays NaN
        options: Any = {"mask": allowed, "dropout": self.dropout_module.p}
        heads = attend_logits(logits.masked_fill(~allowed, 0.0), v, self.site, training=self.training, **options)
        return heads, masked_softmax(logits) if need_weights else None


def _project_jointly(x: Tensor, projections: tuple[nn.Linear, ...]) -> Tensor:
    """Return the outputs of all projections of x (T, B, C), one after the other: (T, B, parts · C)."""
    weights: list[Tensor] = [projection.weight for projection in projections]
    biases: list[Tensor | None] = [projection.bias for projection in projections]
    present = [bias for bias in biases if bias is not None]  # all or none
    return F.linear(x, torch.cat(weights), torch.cat(present) if present else None)


@dataclass(frozen=True)
class FairseqPatch(Patch):
    """An attention module, and its encoder layer, which may bypass it by one native call in evaluation."""

    layer: nn.Module | None = None

    def attach(self) -> None:
        """Attach the module, and disable the layer's native call while the attention is needed in evaluation."""
        super().attach()
        if self.layer is not None and not hasattr(type(self.layer), "unpatched_layer"):
            self.layer.__class__ = _checked_layer(cast("Hashable", type(self.layer)))

    def detach(self) -> None:
        super().detach()
        original = getattr(type(self.layer), "unpatched_layer", None)
        if self.layer is not None and original is not None:
            self.layer.__class__ = original


@cache
def _checked_layer(layer: Hashable) -> type[nn.Module]:
    """Return a subclass of a layer's class with a `can_use_fastpath` that depends on its attention."""
    original = cast("type[nn.Module]", layer)

    def can_use_fastpath(self: Any) -> bool:
        return bool(vars(self)["can_use_fastpath"]) and can_use_original_forward(self.self_attn)

    members = {"can_use_fastpath": property(can_use_fastpath), "unpatched_layer": original, "__module__": __name__}
    return type(original.__name__, (original,), members)


class FairseqModels(Adapter):
    """An adapter of every MultiheadAttention of fairseq's models.

    An attribute of the module identifies cross attention. Other modules below a `decoder` are a decoder's self
    attention, and the rest an encoder's.
    """

    name = "fairseq"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield each module; the calls of subclasses, and of modules that add keys, are intercepted."""
        modules = {path: module for path, module in model.named_modules() if isinstance(module, MultiheadAttention)}
        for path, module, kind, layer, depth in number_layers(model, modules, _kind):
            site = Site(path, kind, layer, depth, module.num_heads)
            refusal = "the module computes attention with xformers" if module.use_xformers else None
            owner = model.get_submodule(path.rpartition(".")[0])
            if type(module) in (MultiheadAttention, RegularizedFairseqAttention) and not _adds_keys(module):
                native = owner if isinstance(owner, TransformerEncoderLayerBase) else None
                yield FairseqPatch(module, site, RegularizedFairseqAttention, refusal, layer=native)
            else:
                yield InterceptionPatch(module, site, refusal=refusal)


def _kind(path: str, module: Any) -> SiteKind:
    if module.encoder_decoder_attention:
        return "cross"
    return "decoder-self" if "decoder" in path.split(".") else "encoder-self"


def _adds_keys(module: Any) -> bool:
    return module.bias_k is not None or bool(module.add_zero_attn)
