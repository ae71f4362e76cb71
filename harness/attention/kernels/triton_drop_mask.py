"""Triton kernels that store drop decisions, one bit per key, for the passes of attention to read.

The decisions equal those of ``drop_bits.h`` and `harness.attention.reference.philox`. A row consists of 32-bit words,
lowest key in the lowest bit, and is padded to a multiple of 128 keys. `window_starts_kernel` stores the random window
starts. `drop_bits_kernel` dilates them to the dropped keys and, unless weights are dropped after the softmax, adds the
keys that a query may not attend to, so that the passes need no other mask of these.
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
def _halves_below(words, doubled):
    """Return in bits 15 and 31 of each word whether its halves are below a threshold, and 0 in the other bits.

    `doubled` is the threshold, below 2**16, in both halves.
    """
    # Bit 15 of each half is 0 if the subtraction of the low 15 bits borrows.
    difference = (words | 0x80008000) - (doubled & 0x7FFF7FFF)
    # Triton's interpreter does not invert unsigned integers.
    return (((words ^ UINT32_MAX) & doubled) | ((words ^ doubled | difference) ^ UINT32_MAX)) & 0x80008000


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "first_bh"])
def window_starts_kernel(Starts, seqlen_q, row_bytes, seed_lo, seed_hi, stream, threshold, first_bh,
                         BLOCK_M: tl.constexpr, BLOCK_BYTES: tl.constexpr):  # fmt: skip
    """Store the window starts of BLOCK_M queries and 8 · BLOCK_BYTES keys of one head.

    Starts is uint8, (heads, seqlen_q, row_bytes), of the heads from `first_bh` (b · H + h) on. The seed, the stream and
    the threshold are uint32 passed as int32.
    """
    blocks_per_row = tl.cdiv(row_bytes, BLOCK_BYTES)
    block, off_bh = tl.program_id(0), tl.program_id(1)
    offs_m = block // blocks_per_row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_byte = block % blocks_per_row * BLOCK_BYTES + tl.arange(0, BLOCK_BYTES)[None, :]
    k0, k1 = seed_lo.to(tl.uint32, bitcast=True), seed_hi.to(tl.uint32, bitcast=True)
    stream, threshold = stream.to(tl.uint32, bitcast=True), threshold.to(tl.uint32, bitcast=True)
    c0, c1 = (offs_byte + offs_m * 0).to(tl.uint32), (offs_m + offs_byte * 0).to(tl.uint32)
    # A Philox block decides the eight keys of a byte: keys 2i and 2i + 1 by the low and the high half of word i.
    words = tl.philox_impl(c0, c1, c0 * 0 + (first_bh + off_bh).to(tl.uint32), c0 * 0 + stream, k0, k1, PHILOX_ROUNDS)
    doubled = (threshold & 0xFFFF) * 0x10001
    below = c0 * 0
    for i in tl.static_range(4):
        below = (below >> 2) | _halves_below(words[i], doubled)
    byte = ((below >> 9) & 0x55) | ((below >> 24) & 0xAA) | tl.where(threshold > 0xFFFF, 0xFF, 0).to(tl.uint32)
    Starts += off_bh.to(tl.int64) * seqlen_q * row_bytes
    tl.store(Starts + offs_m * row_bytes + offs_byte, byte.to(tl.uint8),
             mask=(offs_m < seqlen_q) & (offs_byte < row_bytes))  # fmt: skip


@triton.jit
def _load_starts(starts_ptrs, offs_word, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Load words of window starts, uint32 (BLOCK_M, words); words before key 0 have none.

    `starts_ptrs` points to the first word of each row, (BLOCK_M, 1); offs_word is (1, words).
    """
    seqlen_k, row_words, grid_h, grid_w, num_prefix_tokens = drop_spec
    starts = tl.load(starts_ptrs + offs_word, mask=(offs_word >= 0) & (offs_word < row_words), other=0)
    starts = starts.to(tl.uint32, bitcast=True)
    if UNIT == BLOCK:
        # Only windows that fit in the grid.
        bit = tl.arange(0, 32)[None, None, :]
        offs_n = offs_word[:, :, None] * 32 + bit
        cell = offs_n - num_prefix_tokens
        valid = (
            (cell >= 0) & (offs_n < seqlen_k) & (cell // grid_w <= grid_h - WINDOW) & (cell % grid_w <= grid_w - WINDOW)
        )
        starts &= tl.sum(valid.to(tl.uint32) << bit.to(tl.uint32), axis=2)
    return starts


@triton.jit
def _dilate_right(starts_ptrs, offs_word, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the window starts and the WINDOW - 1 <= 32 keys to the right of each; arguments as in `_load_starts`."""
    words = _load_starts(starts_ptrs, offs_word, drop_spec, UNIT, WINDOW)
    if WINDOW > 1:
        previous = _load_starts(starts_ptrs, offs_word - 1, drop_spec, UNIT, WINDOW)
        shifted = (words.to(tl.uint64) << 32) | previous.to(tl.uint64)
        dilated = shifted
        for _ in tl.static_range(WINDOW - 1):
            shifted = shifted << 1
            dilated |= shifted
        words = (dilated >> 32).to(tl.uint32)
    return words


@triton.jit
def _dilate(starts_ptrs, offs_word, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Return the dropped keys as words; arguments as in `_load_starts`."""
    words = _dilate_right(starts_ptrs, offs_word, drop_spec, UNIT, WINDOW)
    if UNIT == BLOCK:
        grid_w = drop_spec[3]
        for row in tl.static_range(1, WINDOW):
            # Keys `row` grid rows up: their word consists of the ends of two words.
            word_shift, bit_shift = (row * grid_w) // WORD_BITS, ((row * grid_w) % WORD_BITS).to(tl.uint64)
            high = _dilate_right(starts_ptrs, offs_word - word_shift, drop_spec, UNIT, WINDOW)
            low = _dilate_right(starts_ptrs, offs_word - word_shift - 1, drop_spec, UNIT, WINDOW)
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


@triton.jit(do_not_specialize=["num_prefix_tokens", "first_bh"])
def drop_bits_kernel(
    Starts, Bits, Mask, MaskRowMax, starts_rows, bits_rows, row_words, stride_mb, stride_mh, stride_mm, stride_mn,
    stride_maxb, stride_maxh, stride_maxm, num_heads, seqlen_k, masked_logit_gap, masked_logit_max, grid_h, grid_w,
    num_prefix_tokens, first_bh, UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr,
    MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_WORDS: tl.constexpr,
):  # fmt: skip
    """Store the dropped keys of BLOCK_M queries of one head and, unless INVERSE, the keys that they may not attend to.

    Unless INVERSE, rows whose allowed keys are all dropped keep all of them. Starts and Bits are int32, (heads, rows,
    row_words); with WINDOW 1 they may be the same tensor. Row 0 of the starts belongs to all queries if it is the only.
    """
    off_bh = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    off_b, off_h = (first_bh + off_bh) // num_heads, (first_bh + off_bh) % num_heads
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    drop_spec = (seqlen_k, row_words, grid_h, grid_w, num_prefix_tokens)
    starts_ptrs = Starts + (off_bh * starts_rows + tl.minimum(offs_m, starts_rows - 1)) * row_words
    bits_ptrs = Bits + (off_bh * bits_rows + offs_m) * row_words
    kept = tl.zeros([BLOCK_M, BLOCK_WORDS], tl.uint32)
    for first_word in range(0, row_words, BLOCK_WORDS):
        offs_word = first_word + tl.arange(0, BLOCK_WORDS)[None, :]
        in_bounds = (offs_m < bits_rows) & (offs_word < row_words)
        words = _dilate(starts_ptrs, offs_word, drop_spec, UNIT, WINDOW)
        if not INVERSE:
            words |= _out_of_reach(offs_m, offs_word, seqlen_k, IS_CAUSAL)
            masked = words
            if MASK_TYPE != 0:
                masked |= _masked(offs_m, offs_word, bits_rows, seqlen_k, mask_args, MASK_TYPE)
            if MASK_TYPE == BOOLEAN:
                words = masked
            kept |= masked ^ UINT32_MAX
        tl.store(bits_ptrs + offs_word, words.to(tl.int32, bitcast=True), mask=in_bounds)
    if not INVERSE:
        fully_dropped = tl.max((kept != 0).to(tl.int32), axis=1, keep_dims=True) == 0
        fully_dropped &= offs_m < bits_rows
        if tl.max(fully_dropped.to(tl.int32)) > 0:
            for first_word in range(0, row_words, BLOCK_WORDS):
                offs_word = first_word + tl.arange(0, BLOCK_WORDS)[None, :]
                words = _out_of_reach(offs_m, offs_word, seqlen_k, IS_CAUSAL)
                if MASK_TYPE == BOOLEAN:
                    words |= _masked(offs_m, offs_word, bits_rows, seqlen_k, mask_args, MASK_TYPE)
                tl.store(bits_ptrs + offs_word, words.to(tl.int32, bitcast=True),
                         mask=fully_dropped & (offs_word < row_words))  # fmt: skip


@triton.jit
def load_dropped(bits_ptr, stride_bits_m, start_n, offs_m, seqlen_q, BLOCK_N: tl.constexpr):
    """Return -inf where a bit is set, else 0, float32 (BLOCK_M, BLOCK_N): queries offs_m (BLOCK_M,), keys from start_n.

    `bits_ptr` points to the first row of the head; start_n is a multiple of BLOCK_N.
    """
    bits_ptr += offs_m[:, None] * stride_bits_m + start_n // WORD_BITS
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    words = tl.zeros([1, 1], tl.int32)
    for i in tl.static_range(BLOCK_N // WORD_BITS):
        word = tl.load(bits_ptr + i, mask=offs_m[:, None] < seqlen_q, other=0)
        words = tl.where(offs_n // WORD_BITS == i, word, words)
    # Two instructions per key, an AND and a multiplication, both with constants: 22 has the bits of a key's number that
    # differ between the threads of a warp (6) or keep the product in 32 bits (16), so the shift is shared by many keys.
    # Comparisons instead would be packed into words and unpacked again (LLVM in Triton 3.9).
    bit = (words >> (offs_n & 22)) & (1 << (offs_n & 9))
    return (bit * (MINUS_INF_BITS >> (offs_n & 9))).to(tl.float32, bitcast=True)
