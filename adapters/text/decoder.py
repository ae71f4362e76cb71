"""The decoder-only language model of Learned Dropout (Yan 2024): pre-norm, no biases, tied embeddings.

Each Dropout of the source is a site here, which `learned-dropout` can replace. Dropout on the attention weights is an
attention regularizer: the source's Dropout baselines, with three Dropouts per block, are ``model.dropout=0.2`` with
``--regularizer dropout:ratio=0.2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from dropbench.adapters.text.decoder_cache import DecoderCache
from dropbench.adapters.text.options import DecoderOptions
from dropbench.adapters.text.text_transformer import SelfAttention
from dropbench.harness.errors import InputError
from dropbench.harness.models.head_skipping import is_plain, is_unobserved
from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers.base import Site, SiteKind
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask
from dropbench.harness.regularizers.output import regularized_output
from dropbench.harness.validation import model_options

INIT_STD = 0.02
MAX_SHARE = 0.5
"""Share of the outputs above which gathering their weights costs more than the outputs that are left out."""


class Decoder(nn.Module):
    """A decoder-only language model."""

    def __init__(self, options: DecoderOptions, vocabulary: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.token_embedding = nn.Embedding(vocabulary, options.dim)
        self.position_embedding = nn.Embedding(context, options.dim)
        self.embedding_dropout = SiteDropout(options, "embedding_dropout", "embedding")
        self.mask_input = MaskInput(options)
        self.blocks = nn.ModuleList(Block(options, layer) for layer in range(options.layers))
        self.norm = nn.LayerNorm(options.dim, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Outputs added to the residual stream are initialized smaller for deeper models.
                scale = (2 * options.layers) ** -0.5 if name.endswith("out.weight") else 1.0
                nn.init.normal_(parameter, std=INIT_STD * scale)

    def forward(self, tokens: Tensor, cache: DecoderCache | None = None) -> Tensor:
        """Predict the next tokens: token ids (B, T) → logits (B, T, vocabulary).

        With a cache, the tokens follow those of earlier calls with it, of the same batch.

        Raises:
            InputError: the tokens, with those of the cache, are longer than the context; or gradients are enabled with
                a cache.
        """
        if cache is not None and torch.is_grad_enabled():
            raise InputError("a cache is for evaluation without gradients: use `torch.no_grad()`")
        start = 0 if cache is None else cache.length
        end = start + tokens.shape[1]
        check_length(end, self.context)
        hidden = self.token_embedding(tokens) + self.position_embedding.weight[start:end]
        hidden = self.embedding_dropout(hidden)
        embed = self.mask_input(hidden, cache)
        keep_masks = None if cache is None else cache.keep_masks(embed)
        for layer, block in enumerate(self.blocks):
            hidden = block(hidden, embed, cache, None if keep_masks is None else keep_masks[layer])
        if cache is not None:
            cache.length = end
        return linear(self.norm(hidden), self.token_embedding.weight)

    def new_cache(self) -> DecoderCache:
        """Return an empty cache for `forward`, in eval mode and while the weights do not change.

        Raises:
            InputError: the model is in training mode, or its regularizer needs the whole sequence at once.
        """
        blocks = cast(list[Block], list(self.blocks))
        faithful = any(block.attention.always_on and block.attention.site.ratio > 0.0 for block in blocks)
        if self.training or faithful:
            raise InputError("a cache is for evaluation without regularized attention: call `model.eval()`")
        return DecoderCache(sites(self), self.context, can_skip=all(block.can_skip() for block in blocks))


def check_length(tokens: int, context: int) -> None:
    """Raise InputError if a number of tokens exceeds the context."""
    if tokens > context:
        raise InputError(f"an input of {tokens} tokens: expected at most the model's context of {context}")


class Block(nn.Module):
    """A pre-norm block: H' = H + attention(norm(H)); H'' = H' + feed-forward(norm(H'))."""

    def __init__(self, options: DecoderOptions, layer: int) -> None:
        super().__init__()
        dim, path = options.dim, f"blocks.{layer}."
        self.attention_norm = nn.LayerNorm(dim, bias=False)
        site = Site(f"{path}attention", "decoder-self", layer, options.layers, options.heads, width=dim)
        always_on = options.evaluation == "faithful"
        self.attention = SelfAttention(site, dim, bias=False, causal=True, always_on=always_on)
        self.attention_dropout = SiteDropout(options, f"{path}attention_dropout", "attention-output", layer)
        self.feedforward_norm = nn.LayerNorm(dim, bias=False)
        self.feedforward = FeedForward(options)
        self.feedforward_dropout = SiteDropout(options, f"{path}feedforward_dropout", "feed-forward", layer)

    def forward(
        self,
        hidden: Tensor,
        embed: Tensor | None = None,
        cache: DecoderCache | None = None,
        keep_mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the block to (B, T, dim); `embed` (B, T, dim) is the input of pre-computed masks.

        `cache` is that of the tokens before these. `keep_mask`, boolean (B, T, dim), are the feed-forward outputs to
        keep; None: the site computes the mask.
        """
        cached = None if cache is None else cache.of(self.attention.site)
        attention = self.attention(self.attention_norm(hidden), cache=cached)
        hidden = hidden + self.attention_dropout(attention, embed)
        normed = self.feedforward_norm(hidden)
        if keep_mask is not None:
            return add_kept(hidden, normed, self.feedforward, keep_mask)
        whole = cache is None and not torch.is_grad_enabled() and self.can_skip()
        precomputed = self.feedforward_dropout.precomputed_mask(embed) if whole else None
        if precomputed is not None:
            # Single columns are not left out of whole sequences: it saves little, and changes the last digits.
            if not bool(precomputed.any()):
                return hidden
            feedforward = self.feedforward(normed)
            return cast(Tensor, hidden + feedforward * precomputed.to(feedforward.dtype))
        return cast(Tensor, hidden + self.feedforward_dropout(self.feedforward(normed), embed, cache))

    def can_skip(self) -> bool:
        """Return whether feed-forward outputs may be left out: in eval mode, on CPUs, and if no hook needs them."""
        on_cpu = not self.training and self.feedforward.out.weight.is_cpu
        return on_cpu and can_skip(self.feedforward) and all(map(is_unobserved, self.feedforward_dropout.modules()))


class FeedForward(nn.Sequential):
    """A feed-forward network (linear, GELU, linear) of four times the model's width."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__()
        self.hidden = nn.Linear(options.dim, 4 * options.dim, bias=False)
        self.activation = nn.GELU()
        self.out = nn.Linear(4 * options.dim, options.dim, bias=False)


def can_skip(network: nn.Sequential) -> bool:
    """Return whether `add_kept` computes what a network does: linear, exact GELU, linear, without biases and hooks."""
    if len(network) != 3 or not all(is_unobserved(module) for module in (network, *network)):
        return False
    hidden, activation, out = network
    exact_gelu = type(activation) is nn.GELU and activation.approximate == "none"
    return exact_gelu and is_plain(hidden) and is_plain(out) and hidden.bias is None and out.bias is None


def add_kept(residual: Tensor, x: Tensor, network: nn.Sequential, keep_mask: Tensor) -> Tensor:
    """Return residual + keep_mask ⊙ network(x) for a network that fits `can_skip`, without gradients.

    All tensors are (B, T, C), `keep_mask` is boolean. Outputs that no token keeps are not computed, and nothing is if
    there are no others. A dropped output adds 0, even if it would not be finite. The last digits may differ from those
    of the whole network.
    """
    hidden, activation, out = cast(tuple[nn.Linear, nn.GELU, nn.Linear], tuple(network))
    kept = keep_mask.flatten(0, -2).any(dim=0).nonzero().flatten()
    if not len(kept):
        return residual
    features = activation(hidden(x))
    if len(kept) > MAX_SHARE * keep_mask.shape[-1]:
        return cast(Tensor, residual + out(features) * keep_mask)
    outputs = linear(features, out.weight.index_select(0, kept)) * keep_mask.index_select(-1, kept)
    dtype = torch.promote_types(residual.dtype, outputs.dtype)
    return residual.to(dtype).index_add(-1, kept, outputs.to(dtype))


class SiteDropout(nn.Dropout):
    """Dropout that a regularizer can replace."""

    def __init__(self, options: DecoderOptions, name: str, kind: SiteKind, layer: int = 0) -> None:
        super().__init__(options.dropout)
        depth = 1 if kind == "embedding" else options.layers
        self.site = Site(name, kind, layer, depth, options.heads, width=options.dim, embedded=kind != "embedding")

    def forward(self, x: Tensor, embed: Tensor | None = None, cache: DecoderCache | None = None) -> Tensor:
        """Apply Dropout, or the regularizer's module instead, to (B, T, dim).

        `embed` is the input of pre-computed masks, and `cache` that of the tokens before x.
        """
        if self.site.module is None and self.training:
            x = super().forward(x)
        cached = None if cache is None else cache.of(self.site)
        return regularized_output(x, self.site, training=self.training, causal=True, embed=embed, cache=cached)

    def precomputed_mask(self, embed: Tensor | None) -> Tensor | None:
        """Return the mask that multiplies x (B, T, dim) in evaluation; None if it depends on x, or without one."""
        module = self.site.module
        if embed is None or not isinstance(module, LearnedMask) or not module.is_precomputed:
            return None
        return module.rounded_mask(embed, training=False, causal=True)


class MaskInput(nn.Module):
    """The input of pre-computed masks, derived by a regularizer that uses them."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__()
        self.site = Site("mask_input", "mask-input", 0, 1, options.heads, width=options.dim)

    def forward(self, embeddings: Tensor, cache: DecoderCache | None = None) -> Tensor | None:
        """Return the mask input (B, T, dim) for embeddings (B, T, dim); None without such a regularizer."""
        if self.site.module is None:
            return None
        cached = None if cache is None else cache.of(self.site)
        return regularized_output(embeddings, self.site, training=self.training, causal=True, cache=cached)


PUBLISHED = {"learned-dropout-lm": {}, "learned-dropout-lm-baseline": {"dim": 156, "heads": 12}}


def build_decoder(name: str, options: Mapping[str, Any], *, vocabulary: int, context: int) -> nn.Module:
    """Build the language model with random weights: token ids (B, T) → logits (B, T, vocabulary).

    `options` are fields of `DecoderOptions`. `context` is the maximum number of tokens of an input.
    """
    checked = model_options(DecoderOptions, name, {**PUBLISHED[name], **options})
    if checked.dim % checked.heads:
        raise InputError(f"model {name}: heads={checked.heads} does not divide dim={checked.dim}")
    return Decoder(checked, vocabulary, context)
