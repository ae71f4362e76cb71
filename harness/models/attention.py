"""`attend` and `attend_logits`: the attention calls that every regularized model makes."""

from __future__ import annotations

import torch
from torch import Tensor

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.attention.reference import sdpa
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.around import regularized_attention, replaces_dropout
from dropbench.harness.regularizers.auxiliary_loss import recomputing
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.output import output_module, regularized_heads


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    site: Site,
    *,
    training: bool,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Compute scaled dot-product attention, regularized in training by the regularizer of the site.

    In evaluation, or if the site has no regularizer or ratio 0, this is plain `scaled_dot_product_attention`, so that
    the model equals the unpatched one, unless `masked_keys` or `mc_samples` is set. The site's module, if it has one,
    is applied to the output in both modes.

    A NaN in q, k, v or an additive mask propagates to every output that it would reach in SDPA. A row that may attend
    to no key gives 0, with finite gradients, in training and in evaluation.

    Args:
        q: queries (B, H, T, d). Always 4 axes: fold others into the batch, add missing ones with `unsqueeze`.
        k: keys (B, H, S, d); if several query heads share a key head, repeat it for each of them.
        v: values (B, H, S, e).
        site: the site; it has the regularizer and its ratio.
        training: whether to regularize.
        mask: broadcastable to (B, H, T, S): boolean, True where a query may attend; or of any floating dtype, added to
            the logits, with gradients. It is converted, at least to float32, if SDPA does not accept its dtype for q.
        causal: query i attends to keys 0 … i only, in addition to `mask`. For T ≠ S the first query is aligned with
            the first key, as in SDPA; a decoder with cached keys needs a mask instead.
        scale: factor of the logits; default d^-1/2.
        dropout: rate of the model's own dropout of the weights in training, unless the regularizer replaces it.

    Returns:
        (B, H, T, e).

    Raises:
        ValueError: q, k or v does not have 4 axes, or the mask is neither boolean nor floating.
    """
    if not q.dim() == k.dim() == v.dim() == 4:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (q, k, v))
        raise ValueError(
            f"attention '{site.name}': expected q, k, v of shape (batch, heads, tokens, size), got {shapes}"
        )
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"attention '{site.name}': expected a boolean or floating mask, got {mask.dtype}")
    mask = sdpa.fit_mask(mask, q.dtype)
    if site.masked_keys is not None and not training:
        mask = sdpa.with_allowed(mask, ~site.masked_keys[:, None, None, :])
    _note_call(site, training=training)
    regularizer = site.regularizer if site.ratio > 0.0 else None
    if not k.shape[-2]:  # without keys nothing is masked or dropped: the output is 0
        mask, causal, regularizer = None, False, None
    call = Call(q, k, v, mask, causal, scale, dropout if training and not replaces_dropout(site) else 0.0)
    if site.mc_samples and not training and regularizer is not None:
        merged = call.with_merged_mask().mask
        dtype = torch.promote_types(q.dtype, torch.float32)
        added = merged if merged is None or merged.dtype == torch.bool else merged.to(dtype)
        with sdpa.without_autocast(q.device.type):
            weights = regularizer.expected_weights(Call(q.to(dtype), k.to(dtype), v, added, scale=scale), site)
        if site.probe is not None:
            site.probe(site, _probe_weights(weights, merged))
        return weights.to(v.dtype) @ v
    if site.probe is not None:
        with torch.no_grad():
            merged = call.with_merged_mask().mask
            site.probe(site, _probe_weights(sdpa.attention_weights(q, k, mask=merged, scale=scale), merged))
    out = regularized_attention(call, site) if training and regularizer is not None else plain(call)
    if output_module(site) is not None:
        out = regularized_heads(out, site, training=training, keys=k.shape[-2], mask=mask, causal=causal)
    return out


def _probe_weights(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention weights for probes, at least in float32: 0 exactly for pairs that the mask forbids.

    Other weights are at least the smallest normal number, so that none is 0 by underflow.
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    weights = weights.clamp_min(torch.finfo(weights.dtype).tiny)
    return weights if mask is None else weights * sdpa.allowed_keys(mask)


def attend_logits(
    logits: Tensor, v: Tensor, site: Site, *, training: bool, mask: Tensor | None = None, causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Compute `attend` for given logits, with any regularizer.

    Logits equal their product with the identity: they are passed to `attend` as queries, with unit vectors as keys and
    scale 1. That is exact, because each sum has one nonzero term, and it works for every regularizer. It costs S / d
    times the product q kᵀ, which is negligible for the 9 keys of outlook attention.

    `logits` (B, H, T, S) are scaled and finite: forbidden pairs belong in `mask`. Other arguments and the result are
    those of `attend`.
    """
    unit = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    keys = unit.expand(*v.shape[:-1], -1)
    return attend(logits, keys, v, site, training=training, mask=mask, causal=causal, scale=1.0, dropout=dropout)


def attend_weights(logits: Tensor, mask: Tensor, site: Site, *, training: bool) -> Tensor:
    """Return the weights (B, H, T, S) with which `attend_logits` attends, for a module that multiplies values itself.

    They are the output for unit vectors as values, unless the regularizer computes them directly. `logits` are scaled,
    and `mask` is boolean, True where a query may attend; forbidden pairs may have any logit.

    Raises:
        InputError: a regularizer of the site needs the values.
    """
    for part in site.parts or (site,):
        if part.regularizer is not None and part.regularizer.needs_values:
            raise InputError(
                f"{site.name} computes a softmax, and {type(part.regularizer).__name__} needs values: call SDPA there"
                f" (transformers: `model.set_attn_implementation('sdpa')`) or exclude the site"
            )
    if training and site.probe is None and output_module(site) is None:
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if site.regularizer is not None and site.ratio > 0.0:
            weights = site.regularizer.weights(exact, mask, site)
        else:
            weights = sdpa.masked_softmax(sdpa.mask_logits(exact, mask))
        if weights is not None:
            _note_call(site, training=True)
            return weights.to(logits.dtype)
    unit = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    values = unit.expand(*logits.shape[:-2], -1, -1)
    return attend_logits(logits.masked_fill(~mask, 0.0), values, site, training=training, mask=mask)


def _note_call(site: Site, *, training: bool) -> None:
    """Count a call, for the warning of sites that have none, unless activation checkpointing repeats it."""
    if site.reach is None or torch.compiler.is_compiling() or recomputing():
        return
    if training or site.reach.in_evaluation:
        site.reach.note_call(site.name)
