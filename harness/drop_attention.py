"""Attention with the keys that a draw leaves, by the backend that is the fastest here: one operation for autograd.

See `harness.backends` for what there is. All give the same function of the same random bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import with_causal
from harness.backends import chosen
from harness.dropping import attend_kept
from harness.kernels.columns import Columns, worth_moving
from harness.kernels.launch import Launch
from harness.kernels.masks import ROOMS, MaskFiller
from harness.kernels.pieces import Pieces, sums_dtype
from harness.masks import Draw, draw_of, drawn_keys
from harness.regularizers.drop import Rescale

Parts = tuple[Tensor, Tensor, Tensor]

STORED = 2**24
"""Cells of a mask that is stored for the backward pass, 64 MiB; to make it twice, in pieces, takes a tenth longer."""


def drop_attention(
    q: Tensor, k: Tensor, v: Tensor, draw: Draw, rescale: Rescale, ratio: float, *, mask: Tensor | None = None,
    causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention to the keys that are kept; see `harness.regularizers.drop.AttentionDrop` for the ways to rescale.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, e).
        draw: what is dropped.
        rescale: how a row is rescaled.
        ratio: drop ratio, which `inverse` divides by.
        mask: boolean (True: may attend) or additive, broadcastable to (B, H, T, S).
        causal: query i attends to keys 0 … i only, beside `mask`.
        scale: factor of the logits; None: d^-1/2.

    Returns:
        (B, H, T, e).
    """
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = (_lowered(one) for one in (q, k, v))
    backend = chosen(q, k, v, draw, rescale, mask)
    if backend == "eager":
        joined = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
        kept = ~drawn_keys(draw, (*q.shape[:-1], k.shape[-2]), q.device)
        return attend_kept(q, k, v, kept, rescale, ratio, mask=joined, scale=scale)
    out: Tensor
    batch, heads, queries, keys = *q.shape[:-1], k.shape[-2]
    if _shared(draw.unit, mask, causal=causal):
        rows, masked = 1, not worth_moving(batch, heads, queries, keys)
    else:
        rows, masked = queries, batch * heads * queries * keys <= STORED
    if backend == "cpu" and rescale == "renormalize" and masked:
        stored = torch.ops.dropbench.drop_mask(
            mask, draw.key, [batch, heads, rows, keys], draw.unit, draw.probability, draw.window,
            list(draw.grid or ()), draw.prefix, draw.stream, causal,
        )  # fmt: skip
        return scaled_dot_product_attention(q, k, v, attn_mask=stored.to(q.dtype), scale=scale)
    out, *_ = torch.ops.dropbench.drop_attention(
        q, k, v, mask, draw.key, backend, draw.unit, draw.probability, draw.window, list(draw.grid or ()), draw.prefix,
        draw.stream, 1.0 / (1.0 - ratio) if rescale == "inverse" else None, causal,
        q.shape[-1] ** -0.5 if scale is None else scale,
    )  # fmt: skip
    return out


def _lowered(tensor: Tensor) -> Tensor:
    """As autocast does it for SDPA, and not for operations that it has not heard of."""
    if tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def _shared(unit: str, mask: Tensor | None, *, causal: bool) -> bool:
    """Whether all queries of a head may attend to the same keys."""
    return unit == "column" and not causal and (mask is None or mask.dim() < 2 or mask.shape[-2] == 1)


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, draw: Draw, backend: str, inverse: float | None, *,
    causal: bool, scale: float,
) -> Launch | Columns | Pieces:  # fmt: skip
    if backend == "triton":
        return Launch(q, k, v, mask, draw, inverse, causal=causal, scale=scale)
    if _shared(draw.unit, mask, causal=causal):
        return Columns(q, k, v, mask, draw, scale=scale)
    return Pieces(q, k, v, mask, draw, inverse, causal=causal, scale=scale)


@torch.library.custom_op("dropbench::drop_mask", mutates_args=())
def _drop_mask(
    mask: Tensor | None, key: Tensor, shape: list[int], unit: str, probability: float, window: int, grid: list[int],
    prefix: int, stream: int, causal: bool,
) -> Tensor:  # fmt: skip
    batch, heads, queries, keys = shape
    draw = draw_of(key, unit, probability, window, grid, prefix, stream)
    out = ROOMS.take(batch * heads * queries * keys).view(shape)
    MaskFiller(draw, (batch, heads, queries, keys), mask, causal=causal).fill(
        out.view(batch * heads, queries, keys), 0, 0
    )
    return out


@_drop_mask.register_fake
def _(mask: Tensor | None, key: Tensor, shape: list[int], *_: Any) -> Tensor:
    return torch.empty(shape)


@torch.library.custom_op("dropbench::drop_attention", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, key: Tensor, backend: str, unit: str, probability: float,
    window: int, grid: list[int], prefix: int, stream: int, inverse: float | None, causal: bool, scale: float,
) -> Parts:  # fmt: skip
    draw = draw_of(key, unit, probability, window, grid, prefix, stream)
    return _kernel(q, k, v, mask, draw, backend, inverse, causal=causal, scale=scale).forward()


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, key: Tensor, backend: str, unit: str, probability: float,
    window: int, grid: list[int], prefix: int, stream: int, inverse: float | None, causal: bool, scale: float,
) -> Parts:  # fmt: skip
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    if backend == "triton":
        return (
            out,
            q.new_empty(batch, heads, queries, dtype=torch.float32),
            q.new_empty(batch, heads, queries, dtype=torch.int8),
        )
    if _shared(unit, mask, causal=causal):  # as torch's kernel lays it out
        return (
            torch.empty_like(q),
            q.new_empty(batch, queries, heads, dtype=sums_dtype(q)).transpose(1, 2),
            q.new_empty(0),
        )
    rows = (batch, heads, queries) if inverse is None else (2, batch, heads, queries)
    return out, q.new_empty(rows, dtype=sums_dtype(q)), q.new_empty(0)


@torch.library.custom_op("dropbench::drop_attention_backward", mutates_args=())
def _backward(
    d_out: Tensor, out: Tensor, sums: Tensor, spared: Tensor,
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, key: Tensor, backend: str, unit: str, probability: float,
    window: int, grid: list[int], prefix: int, stream: int, inverse: float | None, causal: bool, scale: float,
) -> Parts:  # fmt: skip
    draw = draw_of(key, unit, probability, window, grid, prefix, stream)
    kernel = _kernel(q, k, v, mask, draw, backend, inverse, causal=causal, scale=scale)
    return kernel.backward(d_out, out, sums, spared)


@_backward.register_fake
def _(
    d_out: Tensor, out: Tensor, sums: Tensor, spared: Tensor,
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, key: Tensor, backend: str, unit: str, probability: float,
    window: int, grid: list[int], prefix: int, stream: int, inverse: float | None, causal: bool, scale: float,
) -> Parts:  # fmt: skip
    if backend == "cpu" and _shared(unit, mask, causal=causal):
        d_q, d_k, d_v = (one.new_empty(one.transpose(1, 2).shape).transpose(1, 2) for one in (q, k, v))
        return d_q, d_k, d_v
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Parts) -> None:
    q, k, v, mask, key, *rest = inputs
    ctx.save_for_backward(*output, q, k, v, mask, key)
    ctx.rest = rest


def _differentiate(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Any, ...]:
    found = torch.ops.dropbench.drop_attention_backward(d_out, *ctx.saved_tensors, *ctx.rest)
    return *found, *(None,) * (2 + len(ctx.rest))


_forward.register_autograd(_differentiate, setup_context=_keep)
