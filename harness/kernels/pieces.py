"""Attention with dropped keys on a CPU, piece by piece: a piece's mask or weights are used while the cache has them.

What would be T × S a head is a few MiB at a time, and made again in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels.masks import ROOMS, MaskFiller
from harness.masks import Draw

CACHE = 2**20
"""Bytes of a mask that a thread has to itself: half of what today's cores have as their own cache (L2)."""
FEWEST_ROWS = 1024
"""Of a head, in a piece, even where the cache is too small for them: each piece adds to all gradients of its keys."""


class Piece(NamedTuple):
    """Samples, heads and queries of one piece."""

    batch: slice
    heads: slice
    queries: slice

    def of(self, tensor: Tensor) -> Tensor:
        """Its part of something of (B, H, T, …)."""
        return tensor[self.batch, self.heads, self.queries]

    def whole(self, tensor: Tensor) -> Tensor:
        """Its part of something of (B, H, S, …)."""
        return tensor[self.batch, self.heads]


def pieces(shape: tuple[int, int, int, int], cells: int, least: int, fewest: int) -> Iterator[Piece]:
    """Parts of (B, H, T, S) of about so many cells, none with fewer than `least` heads where there are as many.

    The heads of a piece are one run of b · H + h, and the queries of a head are cut only where a piece of `least` heads
    would be four times too large, and never to less than `fewest`.
    """
    batch, heads, queries, keys = shape
    places = min(batch * heads, max(least, cells // max(1, queries * keys)))
    rows = queries
    if places * queries * keys > 4 * cells:
        rows = max(fewest, cells // (places * keys))
    if places >= heads:
        runs = [(slice(b, b + places // heads), slice(0, heads)) for b in range(0, batch, places // heads)]
    else:
        runs = [(slice(b, b + 1), slice(h, h + places)) for b in range(batch) for h in range(0, heads, places)]
    for b, h in runs:
        for row in range(0, queries, rows):
            yield Piece(b, h, slice(row, row + rows))


class Pieces:
    """One call's work: forward, or backward of the same draw.

    Args:
        q: queries (B, H, T, d).
        k: keys (B, H, S, d).
        v: values (B, H, S, e); for `renormalize` e = d.
        mask: boolean or additive, broadcastable to (B, H, T, S).
        draw: what is dropped.
        inverse: 1 / (1 − ratio) for `inverse`, for which all is float32; None for `renormalize`.
        causal: whether query i attends to keys 0 … i only.
        scale: factor of the logits.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, draw: Draw, inverse: float | None, *, causal: bool,
        scale: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v, self.inverse, self.scale = q, k, v, inverse, scale
        self.shape = *q.shape[:3], k.shape[2]
        threads = torch.get_num_threads()
        # Softmax and drop go over a piece twice, so there the cache counts for more.
        fewest = FEWEST_ROWS if inverse is None else FEWEST_ROWS // 4
        self.pieces = list(pieces(self.shape, threads * CACHE // 4, threads, fewest))
        if inverse is None:
            self.filler = MaskFiller(draw, self.shape, mask, causal=causal)
        else:
            self.filler = MaskFiller(draw, self.shape, mask, causal=causal, kept=inverse, gone=0.0, spare=False)

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """The output (B, H, T, e), what `backward` wants to know of each row's softmax, and nothing."""
        batch, heads, queries, _ = self.shape
        # As SDPA has it: what follows joins the heads.
        out = self.q.new_empty(batch, queries, heads, self.v.shape[-1]).transpose(1, 2)
        sums = torch.empty(
            (batch, heads, queries) if self.inverse is None else (2, batch, heads, queries), dtype=sums_dtype(self.q)
        )
        room = self._room()
        for piece in self.pieces:
            if self.inverse is None:
                found, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    piece.of(self.q), piece.whole(self.k), piece.whole(self.v), attn_mask=self._mask(piece, room),
                    scale=self.scale,
                )  # fmt: skip
                piece.of(sums).copy_(log_sums)
                piece.of(out).copy_(found)
            else:
                self._attend(piece, room, sums, piece.of(out))
        return out, sums, self.q.new_empty(0)

    def backward(self, d_out: Tensor, out: Tensor, sums: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v."""
        d_q, d_k, d_v = (torch.empty_like(one) for one in (self.q, self.k, self.v))
        room = self._room()
        slopes = room if self.inverse is None else self._room()
        delta = torch.linalg.vecdot(d_out, out).contiguous()
        for piece in self.pieces:
            given = piece.of(d_out), piece.of(self.q), piece.whole(self.k), piece.whole(self.v)
            to = piece.of(d_q), piece.whole(d_k), piece.whole(d_v)
            # Pieces of the same heads add up.
            add = piece.queries.start > 0
            if self.inverse is None:
                found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    *given, piece.of(out), piece.of(sums), 0.0, False, attn_mask=self._mask(piece, room),
                    scale=self.scale,
                )  # fmt: skip
                to[0].copy_(found[0])
                for whole, part in zip(to[1:], found[1:], strict=True):
                    whole.copy_(whole + part if add else part)
                continue
            grad, q, k, v = map(_flat, given)
            weights, d_weights = self._part(piece, room), self._part(piece, slopes)
            torch.bmm(q, k.mT, out=weights)
            torch.bmm(grad, v.mT, out=d_weights)
            self.filler.slope(weights, d_weights, sums, delta, *self._start(piece), scale=self.scale)
            _multiply(d_weights, k, to[0])
            _multiply(d_weights.mT, q, to[1], add=add)
            _multiply(weights.mT, grad, to[2], add=add)
        return d_q, d_k, d_v

    def _mask(self, piece: Piece, room: Tensor) -> Tensor:
        places, rows, keys = self._size(piece)
        self.filler.fill(room[: places * rows * keys].view(places, rows, keys), *self._start(piece))
        heads = min(places, self.shape[1])
        return room[: places * rows * keys].view(places // heads, heads, rows, keys).to(self.q.dtype)

    def _attend(self, piece: Piece, room: Tensor, sums: Tensor, to: Tensor) -> None:
        """A piece of `inverse`: softmax and drop in one pass between two products."""
        weights = self._part(piece, room)
        torch.bmm(_flat(piece.of(self.q)), _flat(piece.whole(self.k)).mT, out=weights)
        self.filler.soften(weights, sums, *self._start(piece), scale=self.scale)
        _multiply(weights, _flat(piece.whole(self.v)), to)

    def _room(self) -> Tensor:
        return ROOMS.take(max(math.prod(self._size(piece)) for piece in self.pieces))

    def _part(self, piece: Piece, room: Tensor) -> Tensor:
        size = self._size(piece)
        return room[: math.prod(size)].view(size)

    def _start(self, piece: Piece) -> tuple[int, int]:
        """The first place, b · H + h, and row."""
        return piece.batch.start * self.shape[1] + piece.heads.start, piece.queries.start

    def _size(self, piece: Piece) -> tuple[int, int, int]:
        """Places, rows and keys."""
        b, h, t = (len(range(*part.indices(size))) for part, size in zip(piece, self.shape, strict=False))
        return b * h, t, self.shape[-1]


def sums_dtype(q: Tensor) -> torch.dtype:
    """What sums of exponentials are kept in: float32 at least."""
    return torch.promote_types(q.dtype, torch.float32)


def _flat(tensor: Tensor) -> Tensor:
    """(b, h, n, d) as (b · h, n, d)."""
    return tensor.reshape(-1, *tensor.shape[2:])


def _multiply(left: Tensor, right: Tensor, to: Tensor, *, add: bool = False) -> None:
    """`left` @ `right` of (b · h, …) into, or to, what is (b, h, …)."""
    if to.is_contiguous() and not add:
        torch.bmm(left, right, out=to.view(-1, *to.shape[2:]))
    else:
        found = torch.bmm(left, right).view(to.shape)
        to.copy_(to + found if add else found)
