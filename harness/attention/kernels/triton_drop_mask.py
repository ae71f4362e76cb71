"""Triton kernels that store drop decisions, one bit per key, for the passes of attention to read.

The decisions equal those of ``drop_bits.h`` and `harness.attention.reference.philox`. A 32-bit word holds 32 keys of a
query, lowest key in the lowest bit; keys are padded to a multiple of 128. Words are stored (heads, words, queries), so
that the threads of a warp, which hold different queries, read neighboring words. `drop_bits_kernel` draws the decisions
and, unless weights are dropped after the softmax, adds the keys that a query may not attend to, so that the passes need
no other mask of these. Windows of several keys start where `window_starts_kernel` says. `transposed_bits_kernel` makes
words of 32 queries of a key for the pass whose threads hold different keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

COLUMN = tl.constexpr(1)
BLOCK = tl.constexpr(2)

BOOLEAN = tl.constexpr(1)
ADDITIVE = tl.constexpr(2)

PHILOX_ROUNDS = tl.constexpr(7)
WORD_BITS = tl.constexpr(32)
UINT32_MAX = tl.constexpr(0xFFFFFFFF)
MINUS_INF_BITS = tl.constexpr(-0x800000)
"""-inf in float32, as a signed integer."""


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    """Return the four random words of a counter (Salmon et al. 2011, Philox-4x32); counters may broadcast.

    Unlike `tl.philox_impl`, the first rounds only compute what differs: per column of c0, per row of c1, or once.
    """
    for _ in tl.static_range(PHILOX_ROUNDS):
        product_0, product_2 = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (product_2 >> 32).to(tl.uint32) ^ c1 ^ k0, (product_0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = product_2.to(tl.uint32), product_0.to(tl.uint32)
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _draw_starts(offs_row, offs_word, bh, draws):
    """Draw window starts of 32 keys, uint32 (rows, words); offs_row is (rows, 1), offs_word (1, words).

    `draws` is the seed, low word first, the stream, and the threshold: uint32 passed as int32.
    """
    k0, k1 = draws[0].to(tl.uint32, bitcast=True), draws[1].to(tl.uint32, bitcast=True)
    stream, threshold = draws[2].to(tl.uint32, bitcast=True), draws[3].to(tl.uint32, bitcast=True)
    row, doubled = offs_row.to(tl.uint32), (threshold & 0xFFFF) * 0x10001
    # A half is at least the threshold if two of these have a 1 in bit 15: the half, the threshold's complement, and the
    # low 15 bits plus 2^15 minus those of the threshold. Triton's interpreter does not invert unsigned integers.
    complement, low_complement = doubled ^ UINT32_MAX, 0x80008000 - (doubled & 0x7FFF7FFF)
    kept = (offs_row + offs_word).to(tl.uint32) * 0
    for byte in tl.static_range(4):
        # A Philox block decides eight keys: keys 2i and 2i + 1 by the low and the high half of word i.
        words = _philox((offs_word * 4 + byte).to(tl.uint32), row, bh.to(tl.uint32), stream, k0, k1)
        for i in tl.static_range(4):
            added = (words[i] & 0x7FFF7FFF) + low_complement
            kept = (kept >> 1) | (((words[i] & added) | (complement & (words[i] | added))) & 0x80008000)
    # So far, even keys are in the low half and odd ones in the high half: exchange the middle quarters of ever
    # smaller parts.
    starts = kept ^ UINT32_MAX
    starts = _exchange_quarters(starts, 8, 0x0000FF00)
    starts = _exchange_quarters(starts, 4, 0x00F000F0)
    starts = _exchange_quarters(starts, 2, 0x0C0C0C0C)
    starts = _exchange_quarters(starts, 1, 0x22222222)
    return starts | tl.where(threshold > 0xFFFF, 0xFFFFFFFF, 0).to(tl.uint32)


@triton.jit
def _exchange_quarters(words, WIDTH: tl.constexpr, SECOND: tl.constexpr):
    """Exchange the bits of SECOND with those WIDTH higher."""
    difference = (words ^ (words >> WIDTH)) & SECOND
    return words ^ difference ^ (difference << WIDTH)


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "first_bh"])
def window_starts_kernel(Starts, Valid, starts_rows, row_words, seed_lo, seed_hi, stream, threshold, first_bh,
                         UNIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_WORDS: tl.constexpr):  # fmt: skip
    """Store the window starts of BLOCK_M queries and 32 · BLOCK_WORDS keys of one head.

    Starts is int32, (heads, starts_rows, row_words), of the heads from `first_bh` (b · H + h) on; Valid is int32,
    (row_words,).
    """
    bh = tl.program_id(2)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_word = tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)[None, :]
    starts = _draw_starts(offs_m, offs_word, first_bh + bh, (seed_lo, seed_hi, stream, threshold))
    starts = _valid_starts(starts, Valid, offs_word, row_words, UNIT)
    tl.store(Starts + (bh.to(tl.int64) * starts_rows + offs_m) * row_words + offs_word,
             starts.to(tl.int32, bitcast=True), mask=(offs_m < starts_rows) & (offs_word < row_words))  # fmt: skip


@triton.jit
def _valid_starts(starts, Valid, offs_word, row_words, UNIT: tl.constexpr):
    """Return the starts of windows that fit in the grid of keys, if there is one."""
    if UNIT == BLOCK:
        starts &= tl.load(Valid + offs_word, mask=offs_word < row_words, other=0).to(tl.uint32, bitcast=True)
    return starts


@triton.jit
def _load_starts(starts_ptrs, offs_word, row_words):
    """Load words of window starts, uint32 (BLOCK_M, words); words before key 0 have none.

    `starts_ptrs` points to the first word of each row, (BLOCK_M, 1); offs_word is (1, words).
    """
    starts = tl.load(starts_ptrs + offs_word, mask=(offs_word >= 0) & (offs_word < row_words), other=0)
    return starts.to(tl.uint32, bitcast=True)


@triton.jit
def _dilate_right(starts_ptrs, offs_word, row_words, WINDOW: tl.constexpr):
    """Return the window starts and the WINDOW - 1 <= 32 keys to the right of each; arguments as in `_load_starts`."""
    words = _load_starts(starts_ptrs, offs_word, row_words)
    previous = _load_starts(starts_ptrs, offs_word - 1, row_words)
    shifted = (words.to(tl.uint64) << 32) | previous.to(tl.uint64)
    dilated = shifted
    for _ in tl.static_range(WINDOW - 1):
        shifted = shifted << 1
        dilated |= shifted
    return (dilated >> 32).to(tl.uint32)


@triton.jit
def _dilate(starts_ptrs, offs_word, row_words, grid_w, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the dropped keys as words; arguments as in `_load_starts`."""
    words = _dilate_right(starts_ptrs, offs_word, row_words, WINDOW)
    if UNIT == BLOCK:
        for row in tl.static_range(1, WINDOW):
            # Keys `row` grid rows up: their word consists of the ends of two words.
            word_shift, bit_shift = (row * grid_w) // WORD_BITS, ((row * grid_w) % WORD_BITS).to(tl.uint64)
            high = _dilate_right(starts_ptrs, offs_word - word_shift, row_words, WINDOW)
            low = _dilate_right(starts_ptrs, offs_word - word_shift - 1, row_words, WINDOW)
            both = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
            words |= ((both << bit_shift) >> 32).to(tl.uint32)
    return words


@triton.jit
def _out_of_reach(offs_m, offs_word, seqlen_k, IS_CAUSAL: tl.constexpr):
    """Return the keys after the last and, if IS_CAUSAL, after the query as words, uint32 (BLOCK_M, words).

    offs_m is (BLOCK_M, 1), offs_word (1, words).
    """
    num_allowed = offs_m * 0 + seqlen_k
    if IS_CAUSAL:
        num_allowed = tl.minimum(num_allowed, offs_m + 1)
    num_allowed = tl.minimum(tl.maximum(num_allowed - offs_word * 32, 0), 32)
    return (tl.full([1, 1], UINT32_MAX, tl.uint64) << num_allowed.to(tl.uint64)).to(tl.uint32)


@triton.jit
def _masked(offs_m, offs_word, seqlen_q, seqlen_k, mask_args, MASK_TYPE: tl.constexpr):
    """Return the keys that a mask forbids, or that an additive one lowers too far; shapes as in `_out_of_reach`."""
    Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max = mask_args
    bit = tl.arange(0, 32)[None, None, :]
    offs_m, offs_n = offs_m[:, :, None], offs_word[:, :, None] * 32 + bit
    in_bounds = (offs_m < seqlen_q) & (offs_n < seqlen_k)
    values = tl.load(Mask + offs_m * stride_mm + offs_n * stride_mn, mask=in_bounds, other=0)
    if MASK_TYPE == BOOLEAN:
        allowed = values != 0
    else:
        row_max = tl.load(MaskRowMax + offs_m * stride_maxm, mask=offs_m < seqlen_q, other=0).to(tl.float32)
        bias = values.to(tl.float32)
        allowed = (bias > row_max - masked_logit_gap) & (bias > masked_logit_max)
    return tl.sum((allowed == 0).to(tl.uint32) << bit.to(tl.uint32), axis=2)


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "first_bh"])
def drop_bits_kernel(
    Starts, Valid, Bits, Mask, MaskRowMax, starts_rows, bits_rows, row_words, stride_bits_word, stride_mb, stride_mh,
    stride_mm, stride_mn, stride_maxb, stride_maxh, stride_maxm, num_heads, seqlen_k, masked_logit_gap,
    masked_logit_max, grid_w, seed_lo, seed_hi, stream, threshold, first_bh,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_WORDS: tl.constexpr,
):  # fmt: skip
    """Store the dropped keys of BLOCK_M queries of one head and, unless INVERSE, the keys that they may not attend to.

    Unless INVERSE, rows whose allowed keys are all dropped keep all of them. Bits is int32, (heads, row_words,
    stride_bits_word) with `bits_rows` queries in its last axis, all padded. With WINDOW 1 the starts are drawn here.
    Otherwise, Starts is int32, (heads, starts_rows, row_words). Row 0 of the starts belongs to all queries if it is the
    only one. Valid is as in `window_starts_kernel`.
    """
    off_bh = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    off_b, off_h = (first_bh + off_bh) // num_heads, (first_bh + off_bh) % num_heads
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    offs_row = tl.minimum(offs_m, starts_rows - 1)
    draws = (seed_lo, seed_hi, stream, threshold)
    starts_ptrs = Starts + (off_bh * starts_rows + offs_row) * row_words
    bits_ptrs = Bits + off_bh * row_words * stride_bits_word + offs_m
    kept = tl.zeros([BLOCK_M, BLOCK_WORDS], tl.uint32)
    for first_word in range(0, row_words, BLOCK_WORDS):
        offs_word = first_word + tl.arange(0, BLOCK_WORDS)[None, :]
        in_bounds = (offs_m < stride_bits_word) & (offs_word < row_words)
        if WINDOW == 1:
            words = _draw_starts(offs_row, offs_word, first_bh + tl.program_id(1), draws)
            words = _valid_starts(words, Valid, offs_word, row_words, UNIT)
        else:
            words = _dilate(starts_ptrs, offs_word, row_words, grid_w, UNIT, WINDOW)
        if not INVERSE:
            words |= _out_of_reach(offs_m, offs_word, seqlen_k, IS_CAUSAL)
            masked = words
            if MASK_TYPE != 0:
                masked |= _masked(offs_m, offs_word, bits_rows, seqlen_k, mask_args, MASK_TYPE)
            if MASK_TYPE == BOOLEAN:
                words = masked
            kept |= masked ^ UINT32_MAX
        tl.store(bits_ptrs + offs_word * stride_bits_word, words.to(tl.int32, bitcast=True), mask=in_bounds)
    if not INVERSE:
        fully_dropped = tl.max((kept != 0).to(tl.int32), axis=1, keep_dims=True) == 0
        fully_dropped &= offs_m < bits_rows
        if tl.max(fully_dropped.to(tl.int32)) > 0:
            for first_word in range(0, row_words, BLOCK_WORDS):
                offs_word = first_word + tl.arange(0, BLOCK_WORDS)[None, :]
                words = _out_of_reach(offs_m, offs_word, seqlen_k, IS_CAUSAL)
                if MASK_TYPE == BOOLEAN:
                    words |= _masked(offs_m, offs_word, bits_rows, seqlen_k, mask_args, MASK_TYPE)
                tl.store(bits_ptrs + offs_word * stride_bits_word, words.to(tl.int32, bitcast=True),
                         mask=fully_dropped & (offs_word < row_words))  # fmt: skip


@triton.jit
def transposed_bits_kernel(Bits, Transposed, stride_bits_word, stride_bits_m, row_words, BLOCK_WORDS: tl.constexpr):
    """Store words of 32 queries per key, int32 (heads, query words, 32 · row_words), from those of `drop_bits_kernel`.

    A program transposes BLOCK_WORDS squares of 32 × 32 bits of one head: it exchanges the off-diagonal quarters of ever
    smaller squares.
    """
    query_word, off_bh = tl.program_id(0), tl.program_id(2).to(tl.int64)
    offs_word = (tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS))[None, :]
    offs_m = (query_word * 32 + tl.arange(0, 32))[:, None]
    in_bounds = offs_word < row_words
    bits_ptrs = Bits + (off_bh * row_words + offs_word) * stride_bits_word + offs_m * stride_bits_m
    words = tl.load(bits_ptrs, mask=in_bounds, other=0).to(tl.uint32, bitcast=True)
    words = _exchange_squares(words, 16, 0x0000FFFF, BLOCK_WORDS)
    words = _exchange_squares(words, 8, 0x00FF00FF, BLOCK_WORDS)
    words = _exchange_squares(words, 4, 0x0F0F0F0F, BLOCK_WORDS)
    words = _exchange_squares(words, 2, 0x33333333, BLOCK_WORDS)
    words = _exchange_squares(words, 1, 0x55555555, BLOCK_WORDS)
    offs_n = offs_word * 32 + tl.arange(0, 32)[:, None]
    Transposed += (off_bh * tl.num_programs(0) + query_word) * row_words * 32
    tl.store(Transposed + offs_n, words.to(tl.int32, bitcast=True), mask=in_bounds)


@triton.jit
def _exchange_squares(words, SIDE: tl.constexpr, LOW: tl.constexpr, BLOCK_WORDS: tl.constexpr):
    """Exchange the high bits of the first SIDE of each 2 · SIDE words with the low bits, LOW, of the others.

    words is (32, BLOCK_WORDS).
    """
    pairs = tl.permute(tl.reshape(words, [16 // SIDE, 2, SIDE, BLOCK_WORDS]), (0, 2, 3, 1))
    first, second = tl.split(pairs)
    difference = ((first >> SIDE) ^ second) & LOW
    pairs = tl.join(first ^ (difference << SIDE), second ^ difference)
    return tl.reshape(tl.permute(pairs, (0, 3, 1, 2)), [32, BLOCK_WORDS])


@triton.jit
def load_words(bits_args, start, end, offs_row, BLOCK: tl.constexpr):
    """Return the words of bits `start` to `start` + BLOCK, 32 or 64, of rows offs_row, (rows, 1); twice the one if 32.

    Rows are queries and bits are keys, or the other way round in transposed words. `start` is a multiple of BLOCK; from
    `end` on, nothing is read but the first words.
    """
    bits_ptr, stride_word, stride_row = bits_args
    bits_ptr += tl.where(start < end, start // WORD_BITS, 0) * stride_word + offs_row * stride_row
    first = tl.load(bits_ptr)
    if BLOCK == WORD_BITS:
        return first, first
    return first, tl.load(bits_ptr + stride_word)


@triton.jit
def unpack_words(words, BLOCK: tl.constexpr):
    """Return -inf where a bit of `load_words` is set, else 0, float32 (rows, BLOCK)."""
    offs = tl.arange(0, BLOCK)[None, :]
    words = tl.where(offs < WORD_BITS, words[0], words[1])
    # Two instructions per key, an AND and a multiplication, both with constants: 22 has the bits of a key's number that
    # differ between the threads of a warp (6) or keep the product in 32 bits (16), so the shift is shared by many keys.
    # Comparisons instead would be packed into words and unpacked again (LLVM in Triton 3.9).
    bit = (words >> (offs & 22)) & (1 << (offs & 9))
    return (bit * (MINUS_INF_BITS >> (offs & 9))).to(tl.float32, bitcast=True)
