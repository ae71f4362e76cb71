"""Attention with dropped columns on a CPU: keys that no query may attend to are left out, not masked.

Where all queries of a head lose the same keys, what is left is a shorter attention, which costs less than the whole.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

import torch
from torch import Tensor

from harness.kernels import library
from harness.kernels.masks import ROOMS, MaskFiller, openmp
from harness.masks import Draw

FEWEST, FEWEST_CELLS = 192, 2**20
"""Queries and keys of a head, and pairs of them in all: with fewer, to mask keys costs less than to move the others."""
TOGETHER = 16
"""Keys are left out by so many: torch's kernel works with whole vectors."""


def worth_moving(batch: int, heads: int, queries: int, keys: int) -> bool:
    """Whether `Columns` takes less time than a mask does."""
    return min(queries, keys) >= FEWEST and batch * heads * queries * keys >= FEWEST_CELLS


class Columns:
    """One call's work: forward, or backward of the same draw, for `renormalize`.

    Heads lose different numbers of keys: those that lose more have some masked ones behind their own.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, d).
        mask: boolean or additive, broadcastable to (B, H, 1, S).
        draw: the columns that are dropped.
        scale: factor of the logits.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, draw: Draw, *, scale: float) -> None:
        self.q, self.scale = q, scale
        batch, heads, keys, _ = k.shape
        rows = torch.empty(batch * heads, 1, keys)
        MaskFiller(draw, (batch, heads, 1, keys), mask).fill(rows, 0, 0)
        rows = rows.view(batch, heads, keys)
        order, self.place = torch.empty((2, *rows.shape), dtype=torch.int32)
        order_keys, _ = _kernels()
        most = order_keys(rows.data_ptr(), batch * heads, keys, order.data_ptr(), self.place.data_ptr())
        most = min(-(-max(most, 1) // TOGETHER) * TOGETHER, keys)
        moved = [_moved(one, order, most, _room(one, most)) for one in (k, v)]
        if any(infinite for _, infinite in moved):  # In plain attention it comes through a weight of 0 too.
            most = keys
            moved = [_moved(one, order, most, _room(one, most)) for one in (k, v)]
        (self.k, _), (self.v, _) = moved
        self.mask = rows.gather(-1, order[..., :most].long())[:, :, None].to(q.dtype)

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """The output (B, H, T, d), the logarithm of the sum of each row's exponentials, and nothing."""
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            self.q, self.k, self.v, attn_mask=self.mask, scale=self.scale
        )
        return out, sums, self.q.new_empty(0)

    def backward(self, d_out: Tensor, out: Tensor, sums: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v: 0 for keys that were left out."""
        d_q, *parts = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            d_out, self.q, self.k, self.v, out, sums, 0.0, False, attn_mask=self.mask, scale=self.scale
        )
        batch, heads, keys = self.place.shape
        d_k, d_v = (_moved(one, self.place, keys, one.new_empty(batch, keys, heads, one.shape[-1]))[0] for one in parts)
        return d_q, d_k, d_v


class _Move(ctypes.Structure):
    """`Move` of ``columns.c``."""

    _fields_ = (
        ("batch", ctypes.c_int64), ("heads", ctypes.c_int64), ("count", ctypes.c_int64), ("bytes", ctypes.c_int64),
        ("source", ctypes.c_void_p), ("strides", ctypes.c_int64 * 3), ("keys", ctypes.c_void_p),
        ("to", ctypes.c_void_p), ("looked_at", ctypes.c_int64), ("size", ctypes.c_int32), ("fraction", ctypes.c_int32),
        ("threads", ctypes.c_int32), ("infinite", ctypes.c_int32),
    )  # fmt: skip


def _moved(tensor: Tensor, keys: Tensor, count: int, to: Tensor) -> tuple[Tensor, bool]:
    """Some keys of each head, in their order, and zeros where there is a -1.

    Args:
        tensor: (B, H, S, d), each head's numbers together.
        keys: int32 (B, H, n), contiguous.
        count: of these, how many are moved: the first of each head.
        to: where to, contiguous (B, count, H, d).

    Returns:
        `to` as (B, H, count, d), and whether there is an infinity or a NaN among what is not moved.
    """
    batch, heads, looked_at = keys.shape
    size, kind = tensor.element_size(), torch.finfo(tensor.dtype)
    strides = (ctypes.c_int64 * 3)(*(size * stride for stride in tensor.stride()[:3]))
    job = _Move(
        batch, heads, count, size * tensor.shape[-1], tensor.data_ptr(), strides, keys.data_ptr(), to.data_ptr(),
        looked_at, size, -round(math.log2(kind.eps)), torch.get_num_threads(), 0,
    )  # fmt: skip
    _, move_keys = _kernels()
    move_keys(ctypes.byref(job), openmp())
    return to.transpose(1, 2), bool(job.infinite)


def _room(tensor: Tensor, count: int) -> Tensor:
    """Room for so many keys of each head, (B, count, H, d)."""
    batch, heads, _, size = tensor.shape
    if tensor.dtype == torch.float32:
        return ROOMS.take(batch * count * heads * size).view(batch, count, heads, size)
    return tensor.new_empty(batch, count, heads, size)


@cache
def _kernels() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer]:
    found = library("columns")
    assert found is not None, "asked for before it was known to be there"
    found.order_keys.restype = ctypes.c_int64
    found.order_keys.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    found.move_keys.restype = None
    return found.order_keys, found.move_keys
