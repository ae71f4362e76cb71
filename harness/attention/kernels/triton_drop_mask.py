"""Triton kernels that store drop decisions, one bit per key, for the passes of attention to read.

The decisions equal those of ``drop_bits.h`` and `dropbench.harness.attention.reference.philox`. A 64-bit word holds 64
keys of a query, lowest key in the lowest bit; keys are padded to a multiple of 128. Words are stored (heads, words,
queries), so that the threads of a warp, which hold different queries, read and write neighboring words.
`drop_bits_kernel` draws the decisions and, unless weights are dropped after the softmax, adds the keys that a query may
not attend to, so that the passes need no other mask of these. `transposed_bits_kernel` makes words of 64 queries of a
key for the pass whose threads hold different keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = tl.constexpr(2)

BOOLEAN = tl.constexpr(1)
ADDITIVE = tl.constexpr(2)

PHILOX_ROUNDS = tl.constexpr(7)
WORD_BITS = tl.constexpr(32)
"""Keys that are computed at a time, half a stored word."""
UINT32_MAX = tl.constexpr(0xFFFFFFFF)
MINUS_INF_BITS = tl.constexpr(-0x800000)
"""-inf in float32, as a signed integer."""
ONE_BITS = tl.constexpr(0x3F800000)
"""1 in float32."""
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""The kernels run in Triton's interpreter, which has no inline assembly."""


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    """Return the four random words of a counter (Salmon et al. 2011, Philox-4x32); counters may broadcast.

    Unlike `tl.philox_impl`, the first rounds only compute what differs: once where c0, c2 and c3 are scalars, and once
    per element of c1, outside of a loop over c0.
    """
    for _ in tl.static_range(PHILOX_ROUNDS):
        product_0, product_2 = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (product_2 >> 32).to(tl.uint32) ^ c1 ^ k0, (product_0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = product_2.to(tl.uint32), product_0.to(tl.uint32)
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _shift_in_carry(bits, a, b):
    """Return 2 · bits, plus 1 if the sum of a and b, all uint32, takes 33 bits."""
    if INTERPRETED:
        return bits * 2 + ((a.to(tl.uint64) + b.to(tl.uint64)) >> 32).to(tl.uint32)
    # Two instructions, also where `a` is a shifted word; the line above is compiled to more.
    return tl.inline_asm_elementwise(
        "{ .reg .u32 sum; add.cc.u32 sum, $2, $3; addc.u32 $0, $1, $1; }", "=r,r,r,r", [bits, a, b], dtype=tl.uint32,
        is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _draw_starts(rows, word, bh, draws):
    """Draw the window starts of 32 keys, uint32 like `rows`; `word` is the number of the word in its row.

    `draws` is the seed, low word first, the stream, and the threshold: uint32 passed as int32.
    """
    k0, k1 = draws[0].to(tl.uint32, bitcast=True), draws[1].to(tl.uint32, bitcast=True)
    stream, threshold = draws[2].to(tl.uint32, bitcast=True), draws[3].to(tl.uint32, bitcast=True)
    rows, bh = rows.to(tl.uint32), bh.to(tl.uint32)
    kept = rows * 0
    complement = kept + ((0x10000 - (threshold & 0xFFFF)) << 16)
    for byte in tl.static_range(3, -1, -1):
        # A Philox block decides eight keys: keys 2i and 2i + 1 by the low and the high half of word i. A half keeps its
        # key if it is at least the threshold, so that their difference does not borrow.
        words = _philox((word * 4 + byte).to(tl.uint32), rows, bh, stream, k0, k1)
        for i in tl.static_range(3, -1, -1):
            kept = _shift_in_carry(kept, words[i], complement)
            kept = _shift_in_carry(kept, words[i] << 16, complement)
    # The complement of the threshold 0 does not fit in 16 bits.
    drops_none = tl.where(threshold == 0, UINT32_MAX, 0).to(tl.uint32)
    drops_all = tl.where(threshold > 0xFFFF, UINT32_MAX, 0).to(tl.uint32)
    return ((kept | drops_none) ^ UINT32_MAX) | drops_all


@triton.jit
def _dilate_right(words, previous, WINDOW: tl.constexpr):
    """Return the window starts of words and the WINDOW - 1 <= 32 keys to the right of each.

    `previous` are the starts of the words before.
    """
    shifted = (words.to(tl.uint64) << 32) | previous.to(tl.uint64)
    dilated = shifted
    for _ in tl.static_range(WINDOW - 1):
        shifted = shifted << 1
        dilated |= shifted
    return (dilated >> 32).to(tl.uint32)


@triton.jit
def _rows_above(ring, word, grid_w, none, WINDOW: tl.constexpr):
    """Return the keys of a word that are up to WINDOW - 1 grid rows below a set bit of an earlier word.

    `ring` is where `_dilate_down` stored the last words before `word`. `none` is 0, in the shape of the result.
    """
    below = none
    for row in tl.static_range(1, WINDOW):
        # Their word consists of the ends of two words.
        high, bit_shift = word - (row * grid_w) // WORD_BITS, ((row * grid_w) % WORD_BITS).to(tl.uint64)
        both = _load_word(ring, high - 1) | (tl.where(high < word, _load_word(ring, high), 0) << 32)
        below |= ((both << bit_shift) >> 32).to(tl.uint32)
    return below


@triton.jit
def _dilate_down(words, below, ring, word, grid_w, WINDOW: tl.constexpr):
    """Store words of which each bit is a window's first row in the grid, and return the keys of these windows.

    `below` are the keys of windows that start in earlier words, of `_rows_above`. `ring` is pointers to its first word
    of each query, the stride of its words, and their number, a power of two, minus 1.
    """
    ring_ptrs, stride_word, last = ring
    tl.store(ring_ptrs + (word & last) * stride_word, words.to(tl.int32, bitcast=True))
    below |= words
    if grid_w < WORD_BITS:
        for row in tl.static_range(1, WINDOW):
            within = tl.minimum(row * grid_w, WORD_BITS - 1).to(tl.uint32)
            below |= tl.where(row * grid_w < WORD_BITS, words << within, 0)
    # Threads may hold other queries when they store than when they load.
    tl.debug_barrier()
    return below


@triton.jit
def _load_word(ring, word):
    """Load a word as uint64; words before key 0 are 0."""
    ring_ptrs, stride_word, last = ring
    loaded = tl.load(ring_ptrs + (tl.maximum(word, 0) & last) * stride_word).to(tl.uint32, bitcast=True)
    return tl.where(word >= 0, loaded, 0).to(tl.uint64)


@triton.jit
def _out_of_reach(offs_m, word, seqlen_k, IS_CAUSAL: tl.constexpr):
    """Return the keys of a word after the last and, if IS_CAUSAL, after the query, uint32 like offs_m."""
    num_allowed = offs_m * 0 + seqlen_k
    if IS_CAUSAL:
        num_allowed = tl.minimum(num_allowed, offs_m + 1)
    num_allowed = tl.minimum(tl.maximum(num_allowed - word * 32, 0), 32)
    return (tl.full([1], UINT32_MAX, tl.uint64) << num_allowed.to(tl.uint64)).to(tl.uint32)


@triton.jit
def _masked(offs_m, word, seqlen_q, seqlen_k, mask_args, MASK_TYPE: tl.constexpr):
    """Return the keys of a word that a mask forbids, or that an additive one lowers too far, uint32 like offs_m."""
    Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max = mask_args
    bit = tl.arange(0, 32)[None, :]
    offs_m, offs_n = offs_m[:, None], word * 32 + bit
    in_bounds = (offs_m < seqlen_q) & (offs_n < seqlen_k)
    mask_ptrs = Mask + offs_m.to(tl.int64) * stride_mm + offs_n.to(tl.int64) * stride_mn
    values = tl.load(mask_ptrs, mask=in_bounds, other=0)
    if MASK_TYPE == BOOLEAN:
        allowed = values != 0
    else:
        row_max = tl.load(MaskRowMax + offs_m * stride_maxm, mask=offs_m < seqlen_q, other=0).to(tl.float32)
        bias = values.to(tl.float32)
        allowed = (bias > row_max - masked_logit_gap) & (bias > masked_logit_max)
    return tl.sum((allowed == 0).to(tl.uint32) << bit.to(tl.uint32), axis=1)


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "first_bh"])
def drop_bits_kernel(
    Valid, Ring, Bits, Mask, MaskRowMax, starts_rows, bits_rows, row_words, stride_bits_word, stride_mb, stride_mh,
    stride_mm, stride_mn, stride_maxb, stride_maxh, stride_maxm, num_heads, seqlen_k, masked_logit_gap,
    masked_logit_max, grid_w, last_of_ring, seed_lo, seed_hi, stream, threshold, first_bh,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Store the dropped keys of BLOCK_M queries of one head and, unless INVERSE, the keys that they may not attend to.

    Unless INVERSE, rows whose allowed keys are all dropped keep all of them. Bits is int64, (heads, row_words,
    stride_bits_word) with `bits_rows` queries in its last axis, all padded. Queries share their window starts if
    `starts_rows` is 1. Windows in a grid: Valid has a bit for each key at which one may start, int32 (2 · row_words,),
    and Ring, int32 (heads, last_of_ring + 1, stride_bits_word), holds the last words of windows' first rows.
    """
    off_bh = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    off_b, off_h = (first_bh + off_bh) // num_heads, (first_bh + off_bh) % num_heads
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    draws = (seed_lo, seed_hi, stream, threshold)
    rows = tl.minimum(offs_m, starts_rows - 1)
    in_bounds = offs_m < stride_bits_word
    bits_ptrs = Bits + off_bh * row_words * stride_bits_word + offs_m
    ring = (Ring + off_bh * (last_of_ring + 1) * stride_bits_word + offs_m, stride_bits_word, last_of_ring)
    kept = tl.zeros([BLOCK_M], tl.uint32)
    previous = kept
    end_pair = row_words
    if IS_CAUSAL:  # noqa: SIM102 - one of them is known when the kernel is compiled
        if bits_rows > 1:  # no pass reads decisions about keys after the last query of these
            end_pair = tl.minimum(row_words, (tl.program_id(0) + 1) * (BLOCK_M // 64))
    for pair in range(end_pair):
        bits = kept.to(tl.uint64) * 0
        for half in tl.static_range(2):
            word = 2 * pair + half
            if UNIT == BLOCK and WINDOW > 1:  # before the draw, which then takes the time of the loads
                below = _rows_above(ring, word, grid_w, kept * 0, WINDOW)
            starts = _draw_starts(rows, word, first_bh + tl.program_id(1), draws)
            if UNIT == BLOCK:
                starts &= tl.load(Valid + word).to(tl.uint32, bitcast=True)
            words = _dilate_right(starts, previous, WINDOW)
            previous = starts
            if UNIT == BLOCK and WINDOW > 1:
                words = _dilate_down(words, below, ring, word, grid_w, WINDOW)
            if not INVERSE:
                words |= _out_of_reach(offs_m, word, seqlen_k, IS_CAUSAL)
                masked = words
                if MASK_TYPE != 0:
                    masked |= _masked(offs_m, word, bits_rows, seqlen_k, mask_args, MASK_TYPE)
                if MASK_TYPE == BOOLEAN:
                    words = masked
                kept |= masked ^ UINT32_MAX
            bits |= words.to(tl.uint64) << (32 * half)
        tl.store(bits_ptrs + pair * stride_bits_word, bits.to(tl.int64, bitcast=True), mask=in_bounds)
    if not INVERSE:
        fully_dropped = (kept == 0) & (offs_m < bits_rows)
        if tl.max(fully_dropped.to(tl.int32), axis=0) > 0:
            for pair in range(end_pair):
                bits = kept.to(tl.uint64) * 0
                for half in tl.static_range(2):
                    words = _out_of_reach(offs_m, 2 * pair + half, seqlen_k, IS_CAUSAL)
                    if MASK_TYPE == BOOLEAN:
                        words |= _masked(offs_m, 2 * pair + half, bits_rows, seqlen_k, mask_args, MASK_TYPE)
                    bits |= words.to(tl.uint64) << (32 * half)
                tl.store(bits_ptrs + pair * stride_bits_word, bits.to(tl.int64, bitcast=True), mask=fully_dropped)


@triton.jit
def transposed_bits_kernel(
    Bits, Transposed, stride_bits_word, stride_bits_m, stride_transposed_word, row_words, BLOCK_WORDS: tl.constexpr
):  # fmt: skip
    """Store words of 64 queries per key instead of words of 64 keys per query, those of `drop_bits_kernel`.

    A program transposes BLOCK_WORDS squares of 64 × 64 bits of one head: it exchanges the off-diagonal quarters of ever
    smaller squares. Transposed is int64, (heads, row_words, stride_transposed_word). Squares keep their places, so it
    may be Bits.
    """
    query_word, off_bh = tl.program_id(0), tl.program_id(2).to(tl.int64)
    offs_word = (tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS))[None, :]
    offs_m = (query_word * 64 + tl.arange(0, 64))[:, None]
    in_bounds = offs_word < row_words
    bits_ptrs = Bits + (off_bh * row_words + offs_word) * stride_bits_word + offs_m * stride_bits_m
    words = tl.load(bits_ptrs, mask=in_bounds, other=0).to(tl.uint64, bitcast=True)
    words = _exchange_squares(words, 32, 0x00000000FFFFFFFF, BLOCK_WORDS)
    words = _exchange_squares(words, 16, 0x0000FFFF0000FFFF, BLOCK_WORDS)
    words = _exchange_squares(words, 8, 0x00FF00FF00FF00FF, BLOCK_WORDS)
    words = _exchange_squares(words, 4, 0x0F0F0F0F0F0F0F0F, BLOCK_WORDS)
    words = _exchange_squares(words, 2, 0x3333333333333333, BLOCK_WORDS)
    words = _exchange_squares(words, 1, 0x5555555555555555, BLOCK_WORDS)
    transposed_ptrs = Transposed + (off_bh * row_words + offs_word) * stride_transposed_word + offs_m
    tl.store(transposed_ptrs, words.to(tl.int64, bitcast=True), mask=in_bounds)


@triton.jit
def _exchange_squares(words, SIDE: tl.constexpr, LOW: tl.constexpr, BLOCK_WORDS: tl.constexpr):
    """Exchange the high bits of the first SIDE of each 2 · SIDE words with the low bits, LOW, of the others.

    words is (64, BLOCK_WORDS).
    """
    pairs = tl.permute(tl.reshape(words, [32 // SIDE, 2, SIDE, BLOCK_WORDS]), (0, 2, 3, 1))
    first, second = tl.split(pairs)
    difference = ((first >> SIDE) ^ second) & LOW
    pairs = tl.join(first ^ (difference << SIDE), second ^ difference)
    return tl.reshape(tl.permute(pairs, (0, 3, 1, 2)), [64, BLOCK_WORDS])


@triton.jit
def load_words(bits_args, start, offs_row, BLOCK: tl.constexpr):
    """Return bits `start` to `start` + BLOCK, 32 or 64, of rows offs_row, (rows, 1), as words of 32; if 32, the first.

    Rows are queries and bits are keys, or the other way round in transposed words. `start` is a multiple of BLOCK.
    """
    bits_ptr, stride_word, stride_row = bits_args
    words = tl.load(bits_ptr + start // 64 * stride_word + offs_row * stride_row)
    if BLOCK == WORD_BITS:
        words = words >> (start % 64)
    return words.to(tl.int32), (words >> 32).to(tl.int32)


@triton.jit
def unpack_words(words, BLOCK: tl.constexpr, KEPT: tl.constexpr):
    """Return -inf where a bit of `load_words` is set, else 0, float32 (rows, BLOCK); if KEPT, 0 and 1."""
    offs = tl.arange(0, BLOCK)[None, :]
    words = tl.where(offs < WORD_BITS, words[0], words[1])
    value: tl.constexpr = MINUS_INF_BITS
    if KEPT:
        words, value = ~words, ONE_BITS
    # Two instructions per key, an AND and a multiplication, both with constants: 22 has the bits of a key's number that
    # differ between the threads of a warp (6) or keep the product in 32 bits (16), so the shift is shared by many keys.
    # Comparisons instead would be packed into words and unpacked again (LLVM in Triton 3.9).
    bit = (words >> (offs & 22)) & (1 << (offs & 9))
    return (bit * (value >> (offs & 9))).to(tl.float32, bitcast=True)
