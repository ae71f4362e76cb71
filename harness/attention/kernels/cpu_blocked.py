"""Attention with dropped keys on a CPU, tile by tile: the mask or weights of a tile are consumed while cached.

Instead of T × S cells per head, a few MiB exist at a time; the backward pass recomputes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.attention.kernels.cpu_masks import BUFFERS, MaskFiller
from harness.attention.reference.drop_masks import DropSpec

L2_BYTES = 2**20
"""Bytes of a mask per thread: half of a typical core's own cache (L2)."""
MIN_ROWS = 1024
"""Rows of a head in a tile, even if they exceed the cache: each tile adds to the gradients of all its keys."""


Tile = tuple[slice, slice, slice]
"""Samples, heads and queries computed together: `tensor[tile]` of (B, H, T, …), `tensor[tile[:2]]` of (B, H, S, …)."""


def tiles(shape: tuple[int, int, int, int], numel: int, min_heads: int, min_rows: int) -> Iterator[Tile]:
    """Split (B, H, T, S) into tiles of about `numel` cells and, if there are as many, at least `min_heads` heads.

    The heads of a tile have consecutive indices b · H + h. Their queries are split only if a tile of `min_heads` heads
    would be four times too large, and never below `min_rows`.
    """
    batch, heads, seqlen_q, seqlen_k = shape
    num_bh = min(batch * heads, max(min_heads, numel // max(1, seqlen_q * seqlen_k)))
    rows = seqlen_q
    if num_bh * seqlen_q * seqlen_k > 4 * numel:
        rows = max(min_rows, numel // (num_bh * seqlen_k))
    if num_bh >= heads:
        samples = num_bh // heads
        groups = [(slice(b, min(b + samples, batch)), slice(0, heads)) for b in range(0, batch, samples)]
    else:
        starts = itertools.product(range(batch), range(0, heads, num_bh))
        groups = [(slice(b, b + 1), slice(h, min(h + num_bh, heads))) for b, h in starts]
    for b, h in groups:
        for row in range(0, seqlen_q, rows):
            yield b, h, slice(row, min(row + rows, seqlen_q))


class BlockedAttention:
    """One call, forward or backward with the same spec.

    Arguments are those of `harness.attention.dispatch.drop_attention`, except `keep_scale`: 1 / (1 − ratio) for
    `inverse`, which needs float32, and None for `renormalize`, which needs v to be shaped like k.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v, self.keep_scale, self.scale = q, k, v, keep_scale, scale
        self.shape = *q.shape[:3], k.shape[2]
        threads = torch.get_num_threads()
        # Softmax and drop traverse a tile twice, so the cache matters more for `inverse`.
        min_rows = MIN_ROWS if keep_scale is None else MIN_ROWS // 4
        self.tiles = list(tiles(self.shape, threads * L2_BYTES // 4, threads, min_rows))
        self.filler = MaskFiller(spec, self.shape, mask, keep_scale, causal=causal)

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), the softmax statistics that `backward` needs, and an empty tensor.

        The statistics are the log-sum-exp per row (B, H, T), or `row_stats` of `MaskFiller.softmax_` for `inverse`.
        """
        batch, heads, seqlen_q, _ = self.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = self.q.new_empty(batch, seqlen_q, heads, self.v.shape[-1]).transpose(1, 2)
        stats_shape = (batch, heads, seqlen_q) if self.keep_scale is None else (2, batch, heads, seqlen_q)
        stats = torch.empty(stats_shape, dtype=lse_dtype(self.q))
        scratch = self._scratch()
        for tile in self.tiles:
            q, k, v = self.q[tile], self.k[tile[:2]], self.v[tile[:2]]
            if self.keep_scale is None:
                tile_out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    q, k, v, attn_mask=self._mask(tile, scratch), scale=self.scale
                )
                stats[tile], out[tile] = lse, tile_out
                continue
            weights = self._view(tile, scratch)
            torch.bmm(_flat(q), _flat(k).mT, out=weights)
            self.filler.softmax_(weights, stats, *self._offset(tile), scale=self.scale)
            _matmul(weights, _flat(v), out[tile])
        return out, stats, self.q.new_empty(0)

    def backward(self, d_out: Tensor, out: Tensor, stats: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        dq, dk, dv = (torch.empty_like(tensor) for tensor in (self.q, self.k, self.v))
        scratch = self._scratch()
        dp_scratch = scratch if self.keep_scale is None else self._scratch()
        delta = torch.linalg.vecdot(d_out, out).contiguous()
        for tile in self.tiles:
            inputs = d_out[tile], self.q[tile], self.k[tile[:2]], self.v[tile[:2]]
            tile_dq, tile_dk, tile_dv = dq[tile], dk[tile[:2]], dv[tile[:2]]
            # Tiles of the same heads accumulate.
            accumulate = tile[2].start > 0
            if self.keep_scale is None:
                grad_q, *grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    *inputs, out[tile], stats[tile], 0.0, False,
                    attn_mask=self._mask(tile, scratch), scale=self.scale,
                )  # fmt: skip
                tile_dq.copy_(grad_q)
                for total, grad in zip((tile_dk, tile_dv), grads, strict=True):
                    total.copy_(total + grad if accumulate else grad)
                continue
            tile_d_out, q, k, v = map(_flat, inputs)
            weights, dp = self._view(tile, scratch), self._view(tile, dp_scratch)
            torch.bmm(q, k.mT, out=weights)
            torch.bmm(tile_d_out, v.mT, out=dp)
            self.filler.softmax_backward_(weights, dp, stats, delta, *self._offset(tile), scale=self.scale)
            _matmul(dp, k, tile_dq)
            _matmul(dp.mT, q, tile_dk, accumulate=accumulate)
            _matmul(weights.mT, tile_d_out, tile_dv, accumulate=accumulate)
        return dq, dk, dv

    def _mask(self, tile: Tile, scratch: Tensor) -> Tensor:
        mask = self._view(tile, scratch)
        self.filler.fill(mask, *self._offset(tile))
        heads = min(mask.shape[0], self.shape[1])
        return mask.view(-1, heads, *mask.shape[1:]).to(lse_dtype(self.q))

    def _scratch(self) -> Tensor:
        return BUFFERS.take(max(math.prod(self._size(tile)) for tile in self.tiles))

    def _view(self, tile: Tile, scratch: Tensor) -> Tensor:
        size = self._size(tile)
        return scratch[: math.prod(size)].view(size)

    def _offset(self, tile: Tile) -> tuple[int, int]:
        """Return the first head b · H + h and the first row."""
        batch, heads, rows = tile
        return batch.start * self.shape[1] + heads.start, rows.start

    def _size(self, tile: Tile) -> tuple[int, int, int]:
        """Return the numbers of heads, rows and keys."""
        samples, heads, rows = (part.stop - part.start for part in tile)
        return samples * heads, rows, self.shape[-1]


def lse_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype of masks and softmax statistics: at least float32."""
    return torch.promote_types(q.dtype, torch.float32)


def _flat(tensor: Tensor) -> Tensor:
    """Return (b, h, n, d) as (b · h, n, d)."""
    return tensor.reshape(-1, *tensor.shape[2:])


def _matmul(left: Tensor, right: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
    """Write `left` @ `right` of (b · h, …) to `out` (b, h, …), or add it."""
    if out.is_contiguous() and not accumulate:
        torch.bmm(left, right, out=out.view(-1, *out.shape[2:]))
    else:
        product = torch.bmm(left, right).view(out.shape)
        out.copy_(out + product if accumulate else product)
