"""Drop decisions inside Triton kernels: random window starts, dilated to the keys that their windows drop.

The bits equal those of ``drop_bits.h`` and `harness.attention.reference.philox`. Decisions are computed as words of 32
keys, with the lowest key in the lowest bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

COLUMN = tl.constexpr(1)
BLOCK = tl.constexpr(2)

PHILOX_ROUNDS = tl.constexpr(7)
WORD_BITS = tl.constexpr(32)


@triton.jit
def _window_starts(word_idx, offs_m, off_bh, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the window starts of queries offs_m (BLOCK_M,) and words word_idx (words,), uint32 (BLOCK_M, words).

    Words before key 0 have no starts; off_bh is b · H + h. The first four items of the spec are uint32 passed as int32.
    """
    seed_lo, seed_hi, stream, threshold, seqlen_k, grid_h, grid_w, num_prefix_tokens = drop_spec
    k0, k1 = seed_lo.to(tl.uint32, bitcast=True), seed_hi.to(tl.uint32, bitcast=True)
    stream, threshold = stream.to(tl.uint32, bitcast=True), threshold.to(tl.uint32, bitcast=True)
    word_idx = word_idx[None, :]
    # Four Philox blocks of eight keys per word.
    byte_idx = tl.arange(0, 4)[None, None, :]
    c0 = tl.maximum(word_idx, 0)[:, :, None] * 4 + byte_idx + offs_m[:, None, None] * 0
    c1 = offs_m[:, None, None] + c0 * 0
    zeros = (c0 * 0).to(tl.uint32)
    random_words = tl.philox_impl(
        c0.to(tl.uint32), c1.to(tl.uint32), zeros + off_bh.to(tl.uint32), zeros + stream, k0, k1, PHILOX_ROUNDS
    )
    byte = zeros
    for i in tl.static_range(4):
        byte |= ((random_words[i] & 0xFFFF) < threshold).to(tl.uint32) << (2 * i)
        byte |= ((random_words[i] >> 16) < threshold).to(tl.uint32) << (2 * i + 1)
    starts = tl.sum(byte << (byte_idx * 8).to(tl.uint32), axis=2)
    if UNIT == BLOCK:
        # Only windows that fit in the grid.
        bit = tl.arange(0, 32)[None, None, :]
        offs_n = word_idx[:, :, None] * 32 + bit
        cell = offs_n - num_prefix_tokens
        valid = (
            (cell >= 0) & (offs_n < seqlen_k) & (cell // grid_w <= grid_h - WINDOW) & (cell % grid_w <= grid_w - WINDOW)
        )
        starts &= tl.sum(valid.to(tl.uint32) << bit.to(tl.uint32), axis=2)
    return tl.where(word_idx < 0, starts * 0, starts)


@triton.jit
def _dilate_right(word_idx, offs_m, off_bh, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the window starts and the WINDOW - 1 <= 32 keys to the right of each; arguments as in `_window_starts`."""
    words = _window_starts(word_idx, offs_m, off_bh, drop_spec, UNIT, WINDOW)
    if WINDOW > 1:
        previous = _window_starts(word_idx - 1, offs_m, off_bh, drop_spec, UNIT, WINDOW)
        shifted = (words.to(tl.uint64) << 32) | previous.to(tl.uint64)
        dilated = shifted
        for _ in tl.static_range(WINDOW - 1):
            shifted = shifted << 1
            dilated |= shifted
        words = (dilated >> 32).to(tl.uint32)
    return words


@triton.jit
def compute_drop_mask(start_n, offs_m, off_bh, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr,
                      BLOCK_N: tl.constexpr):  # fmt: skip
    """Return the drop mask, boolean (BLOCK_M, BLOCK_N), or (1, BLOCK_N) if it is the same for all queries.

    `start_n` is the first key, a multiple of 32; other arguments as in `_window_starts`.
    """
    word_idx = start_n // WORD_BITS + tl.arange(0, BLOCK_N // WORD_BITS)
    if UNIT == COLUMN:
        offs_m = tl.zeros([1], tl.int32)
    words = _dilate_right(word_idx, offs_m, off_bh, drop_spec, UNIT, WINDOW)
    if UNIT == BLOCK:
        grid_w = drop_spec[6]
        for row in tl.static_range(1, WINDOW):
            # Keys `row` grid rows up: their word consists of the ends of two words.
            word_shift, bit_shift = (row * grid_w) // WORD_BITS, ((row * grid_w) % WORD_BITS).to(tl.uint64)
            high = _dilate_right(word_idx - word_shift, offs_m, off_bh, drop_spec, UNIT, WINDOW)
            low = _dilate_right(word_idx - word_shift - 1, offs_m, off_bh, drop_spec, UNIT, WINDOW)
            both = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
            words |= ((both << bit_shift) >> 32).to(tl.uint32)
    bit = tl.arange(0, WORD_BITS)[None, None, :].to(tl.uint32)
    bits = (words[:, :, None] >> bit) & 1
    return tl.reshape(bits, [words.shape[0], BLOCK_N]) != 0
