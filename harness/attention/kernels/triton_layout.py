"""How calls of the Triton kernels are laid out: sizes, strides and constants of the launches, and stored decisions."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from dropbench.harness.attention.kernels.triton_runtime import Launch
from dropbench.harness.attention.reference.drop_masks import UNITS, DropSpec
from dropbench.harness.attention.reference.sdpa import MASKED_LOGIT_GAP

ROW_PADDING = 128
"""Stored decisions and row statistics are padded to multiples of it, so that no block reads past them."""
MAX_BITS = 2**25
"""Bytes of decisions that are saved for the backward pass, 1 bit per query and key: at most these or, if they are more,
as many as those of the queries. Otherwise they are made twice, and at most twice as many bytes are stored at a time, or
the decisions of a head per lane. So the memory of many heads grows linearly with their length."""
MAX_GRID = 2**16 - 1
"""Heads per launch, CUDA's limit."""
LANES = 2
"""Streams that take turns where not all bits are stored at a time: while one uses its bits, the next are drawn for the
other, and multiprocessors that one leaves idle, as it has no blocks left, work for the other."""
MAX_LAYOUTS = 1024
"""Kinds of calls for which it is remembered how to launch the kernels."""


def saved_bits_shape(
    q: Tensor, k: Tensor, mask: Tensor | None, unit: str, *, inverse: bool, causal: bool
) -> tuple[int, int, int]:
    """Return the shape of the bits that the forward pass saves for the backward pass: (heads, 64-bit words, rows).

    There is one row for all queries if they may attend to the same keys. There are 0 heads if not all bits are stored
    at a time, see `MAX_BITS`; the backward pass makes them again.
    """
    num_heads, words, rows = q.shape[0] * q.shape[1], padded(k.shape[2]) // 64, padded(q.shape[2])
    rows_share_mask = inverse or not (causal or (mask is not None and mask.dim() > 1 and mask.shape[-2] > 1))
    if unit == "column" and rows_share_mask:
        rows = 1
    return num_heads if 8 * num_heads * words * rows <= _max_bits(q) else 0, words, rows


def _max_bits(q: Tensor) -> int:
    return max(MAX_BITS, q.numel() * q.element_size())


def padded(size: int) -> int:
    """Return the number of stored rows for some queries."""
    return -(-size // ROW_PADDING) * ROW_PADDING


class Layout:
    """Sizes, strides and constants of the launches of a call; calls that are equal in these share one.

    Attributes:
        launches: launches by kernel, number of heads and, for the passes, strides of the outputs' gradient.
        size: numbers of queries and keys.
        saved_shape: see `saved_bits_shape`.
        max_heads: heads whose decisions are stored at a time, in each of `lanes`.
        ring_words: words of 32 keys that the draw of windows in a grid reads again; 0 for other units.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None,
        causal: bool, scale: float, precision: str, max_bits: int,
    ) -> None:  # fmt: skip
        self.launches: dict[tuple[Any, ...], Launch] = {}
        self.size, self.num_bh = (q.shape[2], k.shape[2]), q.shape[0] * q.shape[1]
        mask_type, masked_logit_max = 0, 0.0
        mask_strides: tuple[int, ...] = (0,) * 7
        if mask is not None:
            mask_type = 1
            mask_strides = *mask.expand(*q.shape[:3], k.shape[2]).stride(), 0, 0, 0
            if mask.dtype != torch.bool:
                mask_type, masked_logit_max = 2, torch.finfo(mask.dtype).min / 2
                mask_strides = *mask_strides[:4], *mask.amax(dim=-1).expand(q.shape[:3]).stride()
        inverse = keep_scale is not None
        self.saved_shape = saved_bits_shape(q, k, mask, spec.unit, inverse=inverse, causal=causal)
        _, words, rows = self.saved_shape
        block_d, block_dv = (max(16, 1 << (size - 1).bit_length()) for size in (q.shape[3], v.shape[3]))
        mask_constants: dict[str, Any] = {"INVERSE": inverse, "MASK_TYPE": mask_type, "IS_CAUSAL": causal}
        self.constants = {**mask_constants, "BLOCK_D": block_d, "BLOCK_DV": block_dv, "PRECISION": precision}
        self.strides, self.mask_strides = (*q.stride(), *k.stride(), *v.stride()), mask_strides[:4]
        self.scalars = *q.shape[1:3], k.shape[2], q.shape[3], v.shape[3], float(scale), keep_scale or 1.0
        self.even_dims = (q.shape[3], v.shape[3]) == (block_d, block_dv)
        largest = max(block_d, block_dv)
        self.is_float32 = q.dtype == torch.float32
        self.first_block = 3 if largest > 128 else 2 if self.is_float32 else 0 if largest > 64 else 1
        window = min(spec.window, *spec.grid) if spec.unit == "block" and spec.grid else spec.window
        self.valid: Tensor | None = None
        self.ring_words, grid_w = 0, 1
        if spec.unit == "block" and spec.grid:
            grid_w = spec.grid[1]
            self.valid = _valid_starts(*spec.grid, window, spec.num_prefix_tokens, 2 * words, q.device)
            if window > 1:  # the words that windows reach down from, and one that others may still read
                self.ring_words = 1 << ((window - 1) * grid_w // 32 + 1).bit_length()
        self.bits_sizes = (
            1 if spec.unit == "column" else q.shape[2], min(rows, q.shape[2]), words, rows, *mask_strides, q.shape[1],
            k.shape[2], MASKED_LOGIT_GAP, masked_logit_max, grid_w, max(0, self.ring_words - 1),
        )  # fmt: skip
        self.bits_constants = {
            "UNIT": UNITS.index(spec.unit), "WINDOW": window, **mask_constants, "BLOCK_M": ROW_PADDING
        }  # fmt: skip
        bytes_per_head = (8 * words + 4 * self.ring_words) * rows
        self.lanes = 1 if self.saved_shape[0] else min(LANES, self.num_bh)
        at_a_time = self.num_bh if self.saved_shape[0] else 2 * max_bits // (self.lanes * bytes_per_head)
        self.max_heads = max(1, min(self.num_bh, MAX_GRID, at_a_time))


_layouts: dict[tuple[Any, ...], Layout] = {}


def layout_of(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, causal: bool,
    scale: float,
) -> Layout:  # fmt: skip
    """Return the layout of a call; it is kept for the next calls."""
    exact = q.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32"
    precision = "ieee" if exact else "tf32"
    key = (
        q.dtype, q.shape, q.stride(), k.dtype, k.shape, k.stride(), v.dtype, v.shape, v.stride(), q.device,
        None if mask is None else (mask.dtype, mask.shape, mask.stride()), spec.unit, spec.window, spec.grid,
        spec.num_prefix_tokens, keep_scale, causal, scale, precision, max_bits := _max_bits(q),
    )  # fmt: skip
    if (known := _layouts.get(key)) is None:
        if len(_layouts) >= MAX_LAYOUTS:
            _layouts.clear()
        known = _layouts[key] = Layout(q, k, v, mask, spec, keep_scale, causal, scale, precision, max_bits)
    return known


@cache  # without a limit, as captured CUDA graphs go on reading them
def _valid_starts(
    grid_h: int, grid_w: int, window: int, num_prefix_tokens: int, num_words: int, device: torch.device
) -> Tensor:
    """Return the keys whose windows fit in the grid as 32-bit words, int32 (num_words,)."""
    cell = torch.arange(32 * num_words) - num_prefix_tokens
    valid = (cell >= 0) & (cell // grid_w <= grid_h - window) & (cell % grid_w <= grid_w - window)
    return (valid.view(-1, 32).long() << torch.arange(32)).sum(dim=1).to(torch.int32).to(device)
