"""Attention whose keys are dropped inside the kernel, in Triton: no mask and no weights are ever stored.

FlashAttention-2 (Dao 2023, Algorithms 1 and 2) with the decisions of `harness.masks` made where they are needed, once
in the forward and twice in the backward pass: memory grows with the number of tokens, not with its square. The bits are
those of ``masks.c`` and of `harness.philox`.

With ``TRITON_INTERPRET=1`` in the environment before this is imported, the kernels run on a CPU, slowly.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

ELEMENT = tl.constexpr(0)
COLUMN = tl.constexpr(1)
BLOCK = tl.constexpr(2)

NO_MASK = tl.constexpr(0)
BOOLEAN = tl.constexpr(1)
ADDITIVE = tl.constexpr(2)

ROUNDS = tl.constexpr(7)
WORD = tl.constexpr(32)
"""Keys whose decisions are the bits of one word."""


@triton.jit
def _philox(a, b, c, d, key_low, key_high):
    """Philox 4x32: four words of 32 random bits for each counter (a, b, c, d); all of one shape."""
    low = tl.zeros_like(a) + key_low
    high = tl.zeros_like(a) + key_high
    first = tl.full(a.shape, 0xD2511F53, tl.uint32)
    second = tl.full(a.shape, 0xCD9E8D57, tl.uint32)
    for _ in tl.static_range(ROUNDS):
        above, below = tl.umulhi(first, a), first * a
        a, b = tl.umulhi(second, c) ^ b ^ low, second * c
        c, d = above ^ d ^ high, below
        low += tl.full(a.shape, 0x9E3779B9, tl.uint32)
        high += tl.full(a.shape, 0xBB67AE85, tl.uint32)
    return a, b, c, d


@triton.jit
def _seeds(group, rows, place, draw, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """The seeds of groups of 32 keys as words (M, G), uint32, the lowest key in the lowest bit.

    `group` has the groups' numbers, int32 (1, G), with none before 0; `rows` the queries, int32 (M, 1); `place` is
    b · H + h, and `draw` what `_draw` makes.
    """
    key_low, key_high, stream, threshold, keys, high, wide, prefix = draw
    part = tl.arange(0, 4)[None, None, :]
    block = tl.maximum(group, 0)[:, :, None] * 4 + part + rows[:, :, None] * 0
    row = rows[:, :, None] + block * 0
    zero = (block * 0).to(tl.uint32)
    words = _philox(
        block.to(tl.uint32), row.to(tl.uint32), zero + place.to(tl.uint32), zero + stream, key_low, key_high
    )
    found = zero
    for n in tl.static_range(4):
        found |= ((words[n] & 0xFFFF) < threshold).to(tl.uint32) << (2 * n)
        found |= ((words[n] >> 16) < threshold).to(tl.uint32) << (2 * n + 1)
    seeds = tl.sum(found << (part * 8).to(tl.uint32), axis=2)
    if UNIT == BLOCK:
        bit = tl.arange(0, 32)[None, None, :]
        key = group[:, :, None] * 32 + bit
        cell = key - prefix
        within = (cell >= 0) & (key < keys) & (cell // wide <= high - WINDOW) & (cell % wide <= wide - WINDOW)
        seeds &= tl.sum(within.to(tl.uint32) << bit.to(tl.uint32), axis=2)
    return tl.where(group < 0, seeds * 0, seeds)


@triton.jit
def _grown(group, rows, place, draw, UNIT: tl.constexpr, WINDOW: tl.constexpr):
    """Each seed and the WINDOW - 1 keys to its right, at most 33 in all; as `_seeds`."""
    seeds = _seeds(group, rows, place, draw, UNIT, WINDOW)
    if WINDOW > 1:
        before = _seeds(group - 1, rows, place, draw, UNIT, WINDOW)
        both = (seeds.to(tl.uint64) << 32) | before.to(tl.uint64)
        grown = both
        for _ in tl.static_range(WINDOW - 1):
            both = both << 1
            grown |= both
        seeds = (grown >> 32).to(tl.uint32)
    return seeds


@triton.jit
def _dropped(start, rows, place, draw, UNIT: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr):
    """Whether a query loses a key: boolean (M, KEYS), or (1, KEYS) where that is the same for all queries.

    `start` is the first key, a multiple of 32; the others are as in `_seeds`.
    """
    group = start // WORD + tl.arange(0, KEYS // WORD)[None, :]
    if UNIT == COLUMN:
        words = _grown(group, tl.zeros([1, 1], tl.int32), place, draw, UNIT, WINDOW)
    elif UNIT == ELEMENT:
        words = _grown(group, rows, place, draw, UNIT, WINDOW)
    else:
        words = _grown(group, rows, place, draw, UNIT, WINDOW)
        wide = draw[6]
        for line in tl.static_range(1, WINDOW):
            # The same word `line` rows of the grid higher: the ends of two words.
            whole, rest = (line * wide) // WORD, ((line * wide) % WORD).to(tl.uint64)
            here = _grown(group - whole, rows, place, draw, UNIT, WINDOW)
            before = _grown(group - whole - 1, rows, place, draw, UNIT, WINDOW)
            both = (here.to(tl.uint64) << 32) | before.to(tl.uint64)
            words |= ((both << rest) >> 32).to(tl.uint32)
    bit = tl.arange(0, WORD)[None, None, :].to(tl.uint32)
    bits = (words[:, :, None] >> bit) & 1
    return tl.reshape(bits, [words.shape[0], KEYS]) != 0


@triton.jit
def _logits(q, k, scale, start, rows, queries, keys, mask, MASK: tl.constexpr, CAUSAL: tl.constexpr,
            KEYS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Logits to base 2 with all in them but the drop, and which keys may be attended to; both (M, KEYS)."""
    logits = tl.dot(q, k, input_precision=PRECISION) * (scale * LOG2_E)
    column = start + tl.arange(0, KEYS)[None, :]
    inside = (rows < queries) & (column < keys)
    allowed = inside
    if CAUSAL:
        allowed &= column <= rows
    pointer, step_row, step_key, best, step_best, unseen, least = mask
    if MASK == BOOLEAN:
        allowed &= tl.load(pointer + rows * step_row + column * step_key, mask=inside, other=0) != 0
    # Added, never filled in: filling would hide a NaN.
    logits += tl.where(allowed, 0.0, float("-inf"))
    if MASK == ADDITIVE:
        added = tl.load(pointer + rows * step_row + column * step_key, mask=inside, other=0.0).to(tl.float32)
        highest = tl.load(best + rows * step_best, mask=rows < queries, other=0.0).to(tl.float32)
        logits += added * LOG2_E
        allowed &= (added > highest - unseen) & (added > least)
    return logits, allowed


@triton.jit
def _pass(q, K, V, step_k, step_v, spared, rows, queries, keys, end, scale, size, width, mask, place, draw,
          UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr,
          M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One pass over all keys: the sums of exponentials, of values, and whether a row keeps any key."""
    in_size, in_width = tl.arange(0, D), tl.arange(0, E)
    best = tl.full([M, 1], float("-inf"), tl.float32)
    total = tl.zeros([M, 1], tl.float32)
    values = tl.zeros([M, E], tl.float32)
    keeps = tl.zeros([M, 1], tl.int32)
    for start in range(0, end, N):
        column = start + tl.arange(0, N)
        k = tl.load(K + column[None, :] * step_k[0] + in_size[:, None] * step_k[1],
                    mask=(column < keys)[None, :] & (in_size < size)[:, None], other=0.0)  # fmt: skip
        v = tl.load(V + column[:, None] * step_v[0] + in_width[None, :] * step_v[1],
                    mask=(column < keys)[:, None] & (in_width < width)[None, :], other=0.0)  # fmt: skip
        logits, allowed = _logits(q, k, scale, start, rows, queries, keys, mask, MASK, CAUSAL, N, PRECISION)
        gone = _dropped(start, rows, place, draw, UNIT, WINDOW, N) & (spared == 0)
        if not INVERSE:
            keeps |= tl.max((allowed & (gone == 0)).to(tl.int32), axis=1, keep_dims=True)
            logits += tl.where(gone, float("-inf"), 0.0)
        higher = tl.maximum(best, tl.max(logits, axis=1, keep_dims=True))
        origin = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(logits - origin)
        fade = tl.exp2(best - origin)
        total = total * fade + tl.sum(weights, axis=1, keep_dims=True)
        if INVERSE:
            weights *= tl.where(gone, 0.0, 1.0)
        values = values * fade + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        best = higher
    return best, total, values, keeps


@triton.jit(do_not_specialize=["key_low", "key_high", "stream", "threshold", "prefix"])
def forward(
    Q, K, V, OUT, SUMS, SPARED, MASK, BEST,
    q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, v_b, v_h, v_t, v_d, o_b, o_h, o_t, o_d, m_b, m_h, m_t, m_s, n_b, n_h, n_t,
    heads, queries, keys, size, width, scale, inverse, unseen, least,
    key_low, key_high, stream, threshold, high, wide, prefix,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head: the output, log2 of its sum of exponentials, and which rows are spared."""
    place = tl.program_id(1)
    b, h = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    row = tl.program_id(0) * M + tl.arange(0, M)
    rows = row[:, None]
    in_size, in_width = tl.arange(0, D)[None, :], tl.arange(0, E)[None, :]
    q = tl.load(Q + b * q_b + h * q_h + rows * q_t + in_size * q_d, mask=(rows < queries) & (in_size < size), other=0.0)
    draw = _draw(key_low, key_high, stream, threshold, keys, high, wide, prefix)
    mask = (MASK + b * m_b + h * m_h, m_t, m_s, BEST + b * n_b + h * n_h, n_t, unseen, least)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, (tl.program_id(0) + 1) * M)
    spared = tl.zeros([M, 1], tl.int32)
    best, total, values, keeps = _pass(
        q, K + b * k_b + h * k_h, V + b * v_b + h * v_h, (k_t, k_d), (v_t, v_d), spared, rows, queries, keys, end,
        scale, size, width, mask, place, draw, UNIT, WINDOW, INVERSE, KIND, CAUSAL, M, N, D, E, PRECISION,
    )  # fmt: skip
    if not INVERSE:
        # Rows that would lose every key that they may attend to lose none. They are rare, and then all is done again.
        spared = tl.where(rows < queries, 1 - keeps, 0)
        if tl.max(spared) > 0:
            best, total, values, keeps = _pass(
                q, K + b * k_b + h * k_h, V + b * v_b + h * v_h, (k_t, k_d), (v_t, v_d), spared, rows, queries, keys,
                end, scale, size, width, mask, place, draw, UNIT, WINDOW, INVERSE, KIND, CAUSAL, M, N, D, E, PRECISION,
            )  # fmt: skip
        tl.store(SPARED + place * queries + rows, spared.to(tl.int8), mask=rows < queries)
    empty = total == 0.0
    out = tl.where(empty, 0.0, values / tl.where(empty, 1.0, total)) * inverse
    tl.store(OUT + b * o_b + h * o_h + rows * o_t + in_width * o_d, out.to(OUT.dtype.element_ty),
             mask=(rows < queries) & (in_width < width))  # fmt: skip
    # Infinite where there is nothing to attend to: all weights are 0 then.
    sums = tl.where(empty, float("inf"), best + tl.log2(tl.where(empty, 1.0, total)))
    tl.store(SUMS + place * queries + rows, sums, mask=rows < queries)


@triton.jit
def _draw(key_low, key_high, stream, threshold, keys, high, wide, prefix):
    """What `_seeds` needs to know of a draw; words of 32 bits come as signed numbers."""
    return (
        key_low.to(tl.uint32, bitcast=True), key_high.to(tl.uint32, bitcast=True), stream.to(tl.uint32, bitcast=True),
        threshold.to(tl.uint32, bitcast=True), keys, high, wide, prefix,
    )  # fmt: skip


@triton.jit
def _weights(q, k, v, d_out, sums, delta, spared, start, rows, queries, keys, scale, inverse, mask, place, draw,
             UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK: tl.constexpr,
             CAUSAL: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """The weights that values were multiplied with, and the logits' gradient, both (M, N); k is (D, N), v (E, N)."""
    logits, _ = _logits(q, k, scale, start, rows, queries, keys, mask, MASK, CAUSAL, N, PRECISION)
    gone = _dropped(start, rows, place, draw, UNIT, WINDOW, N) & (spared == 0)
    if not INVERSE:
        logits += tl.where(gone, float("-inf"), 0.0)
    weights = tl.exp2(logits - sums)
    slopes = tl.dot(d_out, v, input_precision=PRECISION)
    used = weights
    if INVERSE:
        kept = tl.where(gone, 0.0, inverse)
        used = weights * kept
        slopes *= kept
    return used, weights * (slopes - delta)


@triton.jit(do_not_specialize=["key_low", "key_high", "stream", "threshold", "prefix"])
def backward_queries(
    Q, K, V, DO, SUMS, DELTA, SPARED, MASK, BEST, DQ,
    q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, v_b, v_h, v_t, v_d, o_b, o_h, o_t, o_d, m_b, m_h, m_t, m_s, n_b, n_h, n_t,
    heads, queries, keys, size, width, scale, inverse, unseen, least,
    key_low, key_high, stream, threshold, high, wide, prefix,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries of one head; DQ is (B, H, T, d), contiguous."""
    place = tl.program_id(1)
    b, h = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    rows = (tl.program_id(0) * M + tl.arange(0, M))[:, None]
    here = rows < queries
    in_size, in_width = tl.arange(0, D), tl.arange(0, E)
    q = tl.load(
        Q + b * q_b + h * q_h + rows * q_t + in_size[None, :] * q_d, mask=here & (in_size < size)[None, :], other=0.0
    )
    d_out = tl.load(
        DO + b * o_b + h * o_h + rows * o_t + in_width[None, :] * o_d,
        mask=here & (in_width < width)[None, :],
        other=0.0,
    )
    sums = tl.load(SUMS + place * queries + rows, mask=here, other=float("inf"))
    delta = tl.load(DELTA + place * queries + rows, mask=here, other=0.0)
    spared = tl.load(SPARED + place * queries + rows, mask=here, other=0).to(tl.int32)
    draw = _draw(key_low, key_high, stream, threshold, keys, high, wide, prefix)
    mask = (MASK + b * m_b + h * m_h, m_t, m_s, BEST + b * n_b + h * n_h, n_t, unseen, least)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, (tl.program_id(0) + 1) * M)
    found = tl.zeros([M, D], tl.float32)
    for start in range(0, end, N):
        column = start + tl.arange(0, N)[None, :]
        k = tl.load(K + b * k_b + h * k_h + column * k_t + in_size[:, None] * k_d,
                    mask=(column < keys) & (in_size < size)[:, None], other=0.0)  # fmt: skip
        v = tl.load(V + b * v_b + h * v_h + column * v_t + in_width[:, None] * v_d,
                    mask=(column < keys) & (in_width < width)[:, None], other=0.0)  # fmt: skip
        _, slopes = _weights(q, k, v, d_out, sums, delta, spared, start, rows, queries, keys, scale, inverse, mask,
                             place, draw, UNIT, WINDOW, INVERSE, KIND, CAUSAL, N, PRECISION)  # fmt: skip
        found += tl.dot(slopes.to(k.dtype), tl.trans(k), input_precision=PRECISION)
    to = DQ + (place.to(tl.int64) * queries + rows) * size + in_size[None, :]
    tl.store(to, (found * scale).to(DQ.dtype.element_ty), mask=here & (in_size < size)[None, :])


@triton.jit(do_not_specialize=["key_low", "key_high", "stream", "threshold", "prefix"])
def backward_keys(
    Q, K, V, DO, SUMS, DELTA, SPARED, MASK, BEST, DK, DV,
    q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, v_b, v_h, v_t, v_d, o_b, o_h, o_t, o_d, m_b, m_h, m_t, m_s, n_b, n_h, n_t,
    heads, queries, keys, size, width, scale, inverse, unseen, least,
    key_low, key_high, stream, threshold, high, wide, prefix,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of N keys and values of one head, (B, H, S, d) and (B, H, S, e), contiguous."""
    place = tl.program_id(1)
    b, h = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    first = tl.program_id(0) * N
    column = first + tl.arange(0, N)
    in_size, in_width = tl.arange(0, D), tl.arange(0, E)
    k = tl.load(K + b * k_b + h * k_h + column[None, :] * k_t + in_size[:, None] * k_d,
                mask=(column < keys)[None, :] & (in_size < size)[:, None], other=0.0)  # fmt: skip
    v = tl.load(V + b * v_b + h * v_h + column[None, :] * v_t + in_width[:, None] * v_d,
                mask=(column < keys)[None, :] & (in_width < width)[:, None], other=0.0)  # fmt: skip
    draw = _draw(key_low, key_high, stream, threshold, keys, high, wide, prefix)
    mask = (MASK + b * m_b + h * m_h, m_t, m_s, BEST + b * n_b + h * n_h, n_t, unseen, least)
    begin = 0
    if CAUSAL:
        begin = first // M * M
    d_k, d_v = tl.zeros([N, D], tl.float32), tl.zeros([N, E], tl.float32)
    for start in range(begin, queries, M):
        rows = (start + tl.arange(0, M))[:, None]
        here = rows < queries
        q = tl.load(
            Q + b * q_b + h * q_h + rows * q_t + in_size[None, :] * q_d,
            mask=here & (in_size < size)[None, :],
            other=0.0,
        )
        d_out = tl.load(
            DO + b * o_b + h * o_h + rows * o_t + in_width[None, :] * o_d,
            mask=here & (in_width < width)[None, :],
            other=0.0,
        )
        sums = tl.load(SUMS + place * queries + rows, mask=here, other=float("inf"))
        delta = tl.load(DELTA + place * queries + rows, mask=here, other=0.0)
        spared = tl.load(SPARED + place * queries + rows, mask=here, other=0).to(tl.int32)
        used, slopes = _weights(q, k, v, d_out, sums, delta, spared, first, rows, queries, keys, scale, inverse, mask,
                                place, draw, UNIT, WINDOW, INVERSE, KIND, CAUSAL, N, PRECISION)  # fmt: skip
        d_v += tl.dot(tl.trans(used.to(d_out.dtype)), d_out, input_precision=PRECISION)
        d_k += tl.dot(tl.trans(slopes.to(q.dtype)), q, input_precision=PRECISION)
    to = (place.to(tl.int64) * keys + column)[:, None]
    tl.store(DK + to * size + in_size[None, :], (d_k * scale).to(DK.dtype.element_ty),
             mask=(column < keys)[:, None] & (in_size < size)[None, :])  # fmt: skip
    tl.store(DV + to * width + in_width[None, :], d_v.to(DV.dtype.element_ty),
             mask=(column < keys)[:, None] & (in_width < width)[None, :])  # fmt: skip
