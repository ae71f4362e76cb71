"""A subclass of torch's nn.MultiheadAttention, alone or in nn.Transformer's layers, that calls `attend` in training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dropbench.harness.attention.reference.sdpa import additive, attention_weights
from dropbench.harness.errors import InputError
from dropbench.harness.interception.grids import key_grid
from dropbench.harness.interception.models import InterceptionPatch
from dropbench.harness.models.adapter import (
    Adapter,
    Patch,
    has_no_hooks,
    number_layers,
    patched_class,
)
from dropbench.harness.models.attention import attend
from dropbench.harness.models.head_skipping import KeptHeads, draw_kept_heads
from dropbench.harness.regularizers.base import Site, SiteKind


@patched_class(nn.MultiheadAttention, bypass=True)
class RegularizedMultiheadAttention(nn.MultiheadAttention):
    """Every form of torch's multi-head attention: self and cross, batched or not, either order, any of its masks.

    Torch's own forward with intercepted calls takes 1.03 to 1.15 times as long for a training step of
    nn.TransformerEncoder with dropkey, and 1.1 to 1.2 times with drophead, whose dropped heads are not projected here.

    Weights returned in training are those before dropping, with gradients: they show what the model attends to, and do
    not change between random draws.
    """

    site: Site

    @property
    def _qkv_same_embed_dim(self) -> bool:
        # If this is true, torch's encoder layer bypasses this module in evaluation by one native call. This must not
        # happen while hooks observe the attention, or if the regularizer is active in evaluation. In training the layer
        # calls it, and others ask, such as peft.
        return bool(vars(self)["_qkv_same_embed_dim"]) and (self.training or has_no_hooks(self))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with shapes and masks of nn.MultiheadAttention."""
        if query.is_nested:
            raise InputError(
                f"{self.site.name}: nested tensors work only in torch's own fast path: expected"
                " `nn.TransformerEncoder(…, enable_nested_tensor=False)`"
            )
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is only a hint on attn_mask in nn.MultiheadAttention: expected attn_mask too")
        batched = query.dim() == 3
        if not batched:
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        # The weights that are returned, and the keys that torch adds, have all heads.
        needs_all = need_weights or self.bias_k is not None
        training = self.training and not needs_all
        kept = draw_kept_heads(self.site, self.out_proj, training=training)
        q, k, v = self._heads(query, key, value, kept, batch_axis=0 if self.batch_first or not batched else 1)
        _check_masks(self.site.name, q, k, self.num_heads, attn_mask, key_padding_mask)
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.view(-1, self.num_heads, q.shape[2], k.shape[2])
        mask = merge_masks(attn_mask, key_padding_mask, q.dtype)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([part, bias.view(1, self.num_heads, 1, -1).expand(len(part), -1, -1, -1)], dim=2)
                for part, bias in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        if mask is not None and mask.shape[-1] < k.shape[2]:
            # Every query may attend to the keys that torch adds.
            mask = F.pad(mask, (0, k.shape[2] - mask.shape[-1]), value=float(mask.dtype == torch.bool))
        out = attend(q, k, v, self.site, training=self.training, mask=mask, dropout=self.dropout)
        joined = out.transpose(1, 2).flatten(2)
        out = self.out_proj(joined) if kept is None else kept.merge(joined, self.out_proj)
        weights = None
        if need_weights:
            weights = attention_weights(q, k, mask=mask)
            weights = weights.mean(dim=1) if average_attn_weights else weights
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _heads(
        self, query: Tensor, key: Tensor, value: Tensor, kept: KeptHeads | None, *, batch_axis: int
    ) -> Iterator[Tensor]:
        """Return q (B, H, T, d), and k and v (B, H, S, d), with the kept heads only."""
        for part in self._projected(query, key, value, kept):
            part = part[None] if part.dim() == 2 else part.movedim(batch_axis, 0)
            yield part.unflatten(-1, (self.num_heads if kept is None else len(kept.index), -1)).transpose(1, 2)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor, kept: KeptHeads | None) -> tuple[Tensor, ...]:
        weight, bias = cast("Tensor | None", self.in_proj_weight), cast("Tensor | None", self.in_proj_bias)
        project = F.linear if kept is None else kept.project
        if weight is not None and query is key and key is value:
            joint = F.linear(query, weight, bias) if kept is None else kept.project(query, weight, bias, 3)
            return joint.chunk(3, dim=-1)
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = separate if weight is None else weight.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(project(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))


def _check_masks(
    name: str, q: Tensor, k: Tensor, heads: int, attn_mask: Tensor | None, padding: Tensor | None
) -> None:  # fmt: skip
    """Refuse the masks that torch refuses.

    Raises:
        InputError: a mask has another dtype or shape than nn.MultiheadAttention documents.
    """
    batch, queries, keys = len(q), q.shape[2], k.shape[2]
    for argument, mask, *shapes in (
        ("attn_mask", attn_mask, (queries, keys), (batch * heads, queries, keys)),
        ("key_padding_mask", padding, (batch, keys)),
    ):
        if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
            raise InputError(f"{name}: {argument} of {mask.dtype}: expected bool or floats")
        if mask is not None and mask.shape not in shapes:
            expected = " or ".join(map(str, shapes))
            raise InputError(f"{name}: {argument} of shape {tuple(mask.shape)}: expected {expected}")


def merge_masks(attn_mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Merge torch's masks of pairs (…, T, S) and keys (B, S), in which True masks, for `attend`; floats are added."""
    padding = padding if padding is None else padding[:, None, None, :]
    masks = [mask for mask in (attn_mask, padding) if mask is not None]
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        return ~reduce(torch.logical_or, masks)
    return reduce(torch.add, [additive(~mask, dtype) if mask.dtype == torch.bool else mask.to(dtype) for mask in masks])


class TorchModels(Adapter):
    """An adapter of every nn.MultiheadAttention of any model.

    In torch's own Transformer layers the layer determines the kind. Elsewhere the path does: cross attention if it
    contains `cross`, `encoder_attn` or `multihead_attn`, else a decoder's self attention if it contains `decoder`, else
    an encoder's.
    """

    name = "torch"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield each module; the calls of subclasses with their own forward are intercepted."""
        modules = {path: child for path, child in model.named_modules() if isinstance(child, nn.MultiheadAttention)}
        for path, module, kind, layer, depth in number_layers(model, modules, lambda path, _: _kind(model, path)):
            site = Site(path, kind, layer, depth, module.num_heads, *key_grid(model, path))
            plain = type(module) in (nn.MultiheadAttention, RegularizedMultiheadAttention)
            yield Patch(module, site, RegularizedMultiheadAttention) if plain else InterceptionPatch(module, site)


def _kind(model: nn.Module, path: str) -> SiteKind:
    owner, _, name = path.removesuffix(".base_layer").rpartition(".")  # an adapter may be around the module
    layer = model.get_submodule(owner)
    if isinstance(layer, nn.TransformerEncoderLayer):
        return "encoder-self"
    if isinstance(layer, nn.TransformerDecoderLayer):
        return "decoder-self" if name == "self_attn" else "cross"
    if re.search("cross|encoder_attn|multihead_attn", path):
        return "cross"
    return "decoder-self" if "decoder" in path else "encoder-self"
