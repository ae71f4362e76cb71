"""fairseq's MultiheadAttention, as a subclass that calls `attend` in training."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from harness.adapter import Adapter, Patch, idle, patched_class, place, stack_of, unasked
from harness.attention import attend, attention_weights, masked_softmax
from harness.attention_logits import attend_logits
from harness.site import Site, SiteKind

State = dict[str, dict[str, Tensor | None]]


@patched_class(MultiheadAttention)
class RegularizedFairseqAttention(MultiheadAttention):  # type: ignore[misc]
    """Self and cross attention, with fairseq's masks; evaluation and beam search are fairseq's own.

    So is training where nothing is dropped: to the bit, as its gradients of a bias add up in another order than ours.

    Weights that are asked for in training are those before anything is dropped.
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
        """Shapes and masks as in fairseq: query (T, B, C), key and value (S, B, C); padding (B, S), True there."""
        if before_softmax or idle(self) or self._drops_nothing():
            out: tuple[Tensor, Tensor | None] = super().forward(
                query, key, value, key_padding_mask, incremental_state, need_weights, static_kv, attn_mask,
                before_softmax, need_head_weights,
            )  # fmt: skip
            return out
        options = (key_padding_mask, incremental_state, static_kv, attn_mask)
        if incremental_state is not None or static_kv:
            heads, weights = self._from_logits(query, key, value, *options, weigh=need_weights or need_head_weights)
        else:
            assert key is not None
            assert value is not None
            q, k, v = self._heads(self.q_proj(query)), self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
            mask = _mask(attn_mask, key_padding_mask, q.dtype)
            heads = attend(q, k, v, self.site, training=self.training, mask=mask)
            weights = attention_weights(q, k, mask=mask) if need_weights or need_head_weights else None
        joined: Tensor = self.out_proj(heads.permute(2, 0, 1, 3).flatten(2))
        if weights is not None:
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)
        return joined, weights

    def _drops_nothing(self) -> bool:
        undropped = self.site.regularizer is None or self.site.ratio == 0.0
        return undropped and self.dropout_module.p == 0.0 and unasked(self)

    def _heads(self, projected: Tensor) -> Tensor:
        """(T, B, C) → (B, H, T, d)."""
        heads: Tensor = projected.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3)
        return heads

    def _from_logits(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        incremental_state: State | None,
        static_kv: bool,
        attn_mask: Tensor | None,
        *,
        weigh: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, H, T, d) and (B, H, T, S) from fairseq's logits and values, which know of cached keys and of beams."""
        skip = self.skip_embed_dim_check
        self.skip_embed_dim_check = True  # past torch's function, which gives no logits
        try:
            logits, v = super().forward(
                query, key, value, key_padding_mask, incremental_state, False, static_kv, attn_mask, True
            )
        finally:
            self.skip_embed_dim_check = skip
        logits = logits.view(query.shape[1], self.num_heads, *logits.shape[1:])
        v = v.view(-1, self.num_heads, *v.shape[1:])
        # In beam search the values of a sentence are held once for all its beams.
        v = v.repeat_interleave(len(logits) // len(v), dim=0)
        allowed = logits != float("-inf")  # a NaN stays one
        heads = attend_logits(logits.masked_fill(~allowed, 0.0), v, self.site, training=self.training, mask=allowed)
        return heads, masked_softmax(logits) if weigh else None


def _mask(attn_mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Both of fairseq's masks, an additive (T, S) and a boolean (B, S) with True for padding, as one for `attend`."""
    if padding is None or padding.dim() == 0:
        return None if attn_mask is None else _additive(attn_mask, dtype)
    hidden = padding.to(torch.bool)[:, None, None, :]
    return ~hidden if attn_mask is None else _additive(attn_mask, dtype).masked_fill(hidden, float("-inf"))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
    return mask.to(dtype)


@dataclass(frozen=True)
class FairseqPatch(Patch):
    """An attention module, and the encoder layer that computes all of itself in one native call where it can."""

    layer: nn.Module | None = None

    def attach(self) -> None:
        """Also keep the layer from that call while the attention has something to do in evaluation."""
        super().attach()
        if self.layer is not None and not hasattr(type(self.layer), "unwatched"):
            self.layer.__class__ = _watched(cast("Hashable", type(self.layer)))

    def detach(self) -> None:
        """Give both back."""
        super().detach()
        original = getattr(type(self.layer), "unwatched", None)
        if self.layer is not None and original is not None:
            self.layer.__class__ = original


@cache
def _watched(layer: Hashable) -> type[nn.Module]:
    """A layer's class with a `can_use_fastpath` that asks its attention first."""
    original = cast("type[nn.Module]", layer)

    def can_use_fastpath(self: Any) -> bool:
        return bool(vars(self)["can_use_fastpath"]) and idle(self.self_attn)

    members = {"can_use_fastpath": property(can_use_fastpath), "unwatched": original, "__module__": __name__}
    return type(original.__name__, (original,), members)


class FairseqModels(Adapter):
    """Every MultiheadAttention of fairseq's models.

    A module says itself whether it is cross attention. Of the others, those below a `decoder` are a decoder's self
    attention, the rest an encoder's.
    """

    name = "fairseq"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Module by module; variants with a forward of their own are refused."""
        found = [(path, module) for path, module in model.named_modules() if isinstance(module, MultiheadAttention)]
        kinds = [_kind(path, module) for path, module in found]
        places = place(zip([stack_of(model, path) for path, _ in found], kinds, strict=True))
        for (path, module), kind, (layer, depth) in zip(found, kinds, places, strict=True):
            owner = model.get_submodule(path.rpartition(".")[0])
            yield FairseqPatch(
                module,
                Site(path, kind, layer, depth, module.num_heads),
                RegularizedFairseqAttention,
                _refusal(module),
                layer=owner if isinstance(owner, TransformerEncoderLayerBase) else None,
            )


def _kind(path: str, module: Any) -> SiteKind:
    if module.encoder_decoder_attention:
        return "cross"
    return "decoder-self" if "decoder" in path.split(".") else "encoder-self"


def _refusal(module: Any) -> str | None:
    if type(module) not in (MultiheadAttention, RegularizedFairseqAttention):
        return f"{type(module).__name__} changes fairseq's MultiheadAttention in its own way"
    if module.bias_k is not None or module.add_zero_attn:
        return "it adds keys of its own"
    return "it computes its attention by xformers" if module.use_xformers else None
