"""Attention with dropped columns on a CPU: keys that no query may attend to are removed instead of masked.

If all queries of a head drop the same keys, attention over the remaining ones is shorter and costs less.
"""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from harness.attention.kernels.c_library import load_function
from harness.attention.kernels.cpu_masks import BUFFERS, MaskFiller, gomp_parallel, lse_dtype, struct_fields
from harness.attention.reference.drop_masks import DropSpec

MIN_SEQLEN = 512
"""Queries and keys per head: below this, the fused kernel costs less than gathering."""
ALIGN = 16
"""The number of gathered keys is a multiple of this: torch's kernel works on full vectors."""


def should_gather(seqlen_q: int, seqlen_k: int) -> bool:
    """Return whether `GatheredAttention` is faster than a mask."""
    return min(seqlen_q, seqlen_k) >= MIN_SEQLEN


class GatheredAttention:
    """One call, forward or backward with the same spec, for `renormalize`.

    Heads keep different numbers of keys: heads that keep fewer have masked ones after their own. Arguments are those of
    `harness.attention.dispatch.drop_attention`, with v shaped like k and `mask` broadcastable to (B, H, 1, S).
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, *, scale: float) -> None:
        self.q, self.scale = q, scale
        batch, heads, seqlen_k, _ = k.shape
        full_mask = torch.empty(batch * heads, 1, seqlen_k)
        MaskFiller(spec, (batch, heads, 1, seqlen_k), mask).fill(full_mask, 0, 0)
        full_mask = full_mask.view(batch, heads, seqlen_k)
        order, self.position = torch.empty((2, *full_mask.shape), dtype=torch.int32)
        pointers = map(ctypes.c_void_p, (full_mask.data_ptr(), order.data_ptr(), self.position.data_ptr()))
        max_kept = ctypes.c_int64()
        sizes = map(ctypes.c_int64, (batch * heads, seqlen_k))
        load_function("cpu_columns", "order_keys")(*sizes, *pointers, ctypes.byref(max_kept))
        count = min(-(-max(max_kept.value, 1) // ALIGN) * ALIGN, seqlen_k)
        gathered = [_gather(tensor, order, count, _scratch(tensor, count)) for tensor in (k, v)]
        if any(nonfinite for _, nonfinite in gathered):  # Plain attention propagates NaN through weights of 0.
            count = seqlen_k
            gathered = [_gather(tensor, order, count, _scratch(tensor, count)) for tensor in (k, v)]
        (self.k, _), (self.v, _) = gathered
        self.mask = full_mask.gather(-1, order[..., :count].long())[:, :, None].to(lse_dtype(q))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, d), the log-sum-exp per row (B, H, T), and an empty tensor."""
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            self.q, self.k, self.v, attn_mask=self.mask, scale=self.scale
        )
        return out, lse, self.q.new_empty(0)

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v: 0 for removed keys."""
        dq, *gathered = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            d_out, self.q, self.k, self.v, out, lse, 0.0, False, attn_mask=self.mask, scale=self.scale
        )
        batch, heads, seqlen_k = self.position.shape
        dk, dv = (
            _gather(grad, self.position, seqlen_k, grad.new_empty(batch, seqlen_k, heads, grad.shape[-1]))[0]
            for grad in gathered
        )
        return dq, dk, dv


class _GatherArgs(ctypes.Structure):
    """`GatherArgs` of ``cpu_columns.c``."""

    _fields_ = (
        ("strides", ctypes.c_int64 * 3),
        *struct_fields(
            int64="batch heads count row_bytes num_index", void_p="source index out",
            int32="itemsize mantissa_bits num_threads any_nonfinite",
        ),
    )  # fmt: skip


def _gather(source: Tensor, index: Tensor, count: int, out: Tensor) -> tuple[Tensor, bool]:
    """Gather keys of each head, with zeros at index -1.

    Args:
        source: (B, H, S, d), contiguous along d.
        index: int32 (B, H, n), contiguous.
        count: number of keys to gather, the first of each head.
        out: result, contiguous (B, count, H, d).

    Returns:
        `out` as (B, H, count, d), and whether a key after the first `count` contains an infinity or NaN.
    """
    batch, heads, num_index = index.shape
    itemsize, dtype = source.element_size(), torch.finfo(source.dtype)
    strides = (ctypes.c_int64 * 3)(*(itemsize * stride for stride in source.stride()[:3]))
    args = _GatherArgs(
        strides, batch, heads, count, itemsize * source.shape[-1], num_index, source.data_ptr(), index.data_ptr(),
        out.data_ptr(), itemsize, -round(math.log2(dtype.eps)), torch.get_num_threads(), 0,
    )  # fmt: skip
    load_function("cpu_columns", "gather_keys")(ctypes.byref(args), gomp_parallel())
    return out.transpose(1, 2), bool(args.any_nonfinite)


def _scratch(tensor: Tensor, count: int) -> Tensor:
    """Return uninitialized memory for `count` keys of each head, (B, count, H, d)."""
    batch, heads, _, head_dim = tensor.shape
    if tensor.dtype == torch.float32:
        return BUFFERS.take(batch * count * heads * head_dim).view(batch, count, heads, head_dim)
    return tensor.new_empty(batch, count, heads, head_dim)
