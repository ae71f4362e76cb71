"""Fused Triton kernels for attention with dropped keys: weights are never stored, drop decisions as one bit each.

FlashAttention-2 (Dao 2023, Algorithms 1 and 2). All three passes read the bits that the kernels of `triton_drop_mask`
store for some heads at a time. The pass over keys computes transposed weights, (BLOCK_N, BLOCK_M), which its products
then read from registers, and needs transposed bits.

Row statistics (m_i, l_i, lse, delta) are columns (BLOCK_M, 1), or rows: with 1-D ones Triton 3.9 compiles some variants
to far more instructions.
With ``TRITON_INTERPRET=1`` in the environment before the first import, the kernels run on a CPU, slowly.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dropbench.harness.attention.kernels.triton_drop_mask import ADDITIVE, BOOLEAN, load_words, unpack_words
from dropbench.harness.attention.kernels.triton_layout import ROW_PADDING

LOG2_E = tl.constexpr(1.4426950408889634)
PADDED_ROWS = tl.constexpr(ROW_PADDING)


@triton.jit
def _load_tile(ptr, offs_0, stride_0, size_0, offs_1, stride_1, size_1, EVEN: tl.constexpr):
    """Load a 2-D tile; offsets are shaped (rows, 1) and (1, columns). Unless EVEN, 0 is loaded out of bounds."""
    ptrs = ptr + offs_0 * stride_0 + offs_1 * stride_1
    if EVEN:
        return tl.load(ptrs)
    return tl.load(ptrs, mask=(offs_0 < size_0) & (offs_1 < size_1), other=0.0)


@triton.jit
def _store_tile(ptr, offs_0, stride_0, size_0, offs_1, stride_1, size_1, values):
    """Store a 2-D tile in the pointer's dtype; arguments as in `_load_tile`."""
    tl.store(ptr + offs_0 * stride_0 + offs_1 * stride_1, values.to(ptr.dtype.element_ty),
             mask=(offs_0 < size_0) & (offs_1 < size_1))  # fmt: skip


@triton.jit
def _query_block(IS_CAUSAL: tl.constexpr):
    """Return the number of the block of queries; if IS_CAUSAL the last ones, which attend to most keys, start first."""
    block = tl.program_id(0)
    if IS_CAUSAL:
        block = tl.num_programs(0) - 1 - block
    return block


@triton.jit
def _masked_qk(qk, dropped, start_m, start_n, offs_m, offs_n, seqlen_q, seqlen_k, softmax_scale, mask_args,
               INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, EVEN: tl.constexpr,
               BLOCK_N: tl.constexpr):  # fmt: skip
    """Return the masked logits in base 2; offs_m and offs_n are shaped along the axes of qk.

    `dropped` is -inf where a stored bit is set, else 0; if INVERSE, it is not read.
    """
    Mask, stride_mm, stride_mn = mask_args
    in_bounds = (offs_m < seqlen_q) & (offs_n < seqlen_k)
    mask_ptrs = Mask + offs_m.to(tl.int64) * stride_mm + offs_n.to(tl.int64) * stride_mn
    # Scaled first: Triton would make the sum alone the initial value of the product, which then waits for the bits.
    qk = qk * (softmax_scale * LOG2_E)
    # Add -inf instead of filling with it: filling would hide a NaN.
    if INVERSE:
        # The softmax runs over all allowed keys.
        if IS_CAUSAL:  # noqa: SIM102 - known when the kernel is compiled
            if start_n + BLOCK_N > start_m:  # otherwise all keys of the block are allowed
                qk += tl.where(offs_n > offs_m, float("-inf"), 0.0)
        if not EVEN:
            qk += tl.where(offs_n >= seqlen_k, float("-inf"), 0.0)
        if MASK_TYPE == BOOLEAN:
            qk += tl.where(tl.load(mask_ptrs, mask=in_bounds, other=0) == 0, float("-inf"), 0.0)
    else:
        qk += dropped
    if MASK_TYPE == ADDITIVE:
        bias = tl.load(mask_ptrs, mask=in_bounds, other=0.0).to(tl.float32)
        qk += bias * LOG2_E
    return qk


@triton.jit(do_not_specialize=["first_bh"])
def fwd_kernel(
    Q, K, V, Out, Lse, Mask, Bits,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_bits_h, stride_bits_word, stride_bits_row,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, first_bh,
    INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the output and the log2-sum-exp2 for BLOCK_M queries of one head.

    Strides are named after the tensor (q, k, v, o: output, m: mask) and the axis. Bits holds the heads from
    `first_bh` (b · H + h) on, one per program of the second axis. EVEN says that all tiles of queries, keys and
    values are within bounds.
    """
    start_m, off_bh = _query_block(IS_CAUSAL) * BLOCK_M, first_bh + tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_m = (start_m + tl.arange(0, BLOCK_M))[:, None]
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    Out += off_b * stride_ob + off_h * stride_oh
    q = _load_tile(Q, offs_m, stride_qm, seqlen_q, offs_d[None, :], stride_qd, head_dim, EVEN)
    mask_args = (Mask + off_b * stride_mb + off_h * stride_mh, stride_mm, stride_mn)
    bits_args = (Bits + tl.program_id(1).to(tl.int64) * stride_bits_h, stride_bits_word, stride_bits_row)
    end_n = seqlen_k
    if IS_CAUSAL:
        end_n = tl.minimum(seqlen_k, start_m + BLOCK_M)
    m_i = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M, 1], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    for start_n in range(0, end_n, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = _load_tile(K, offs_n[None, :], stride_kn, seqlen_k, offs_d[:, None], stride_kd, head_dim, EVEN)
        v = _load_tile(V, offs_n[:, None], stride_vn, seqlen_k, offs_dv[None, :], stride_vd, head_dim_v, EVEN)
        words = load_words(bits_args, start_n, offs_m, BLOCK_N)
        qk = tl.dot(q, k, input_precision=PRECISION)
        dropped = unpack_words(words, BLOCK_N, INVERSE)
        qk = _masked_qk(qk, dropped, start_m, start_n, offs_m, offs_n[None, :], seqlen_q, seqlen_k, softmax_scale,
                        mask_args, INVERSE, MASK_TYPE, IS_CAUSAL, EVEN, BLOCK_N)  # fmt: skip
        m_new = tl.maximum(m_i, tl.max(qk, axis=1, keep_dims=True))
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(qk - m_finite)
        alpha = tl.exp2(m_i - m_finite)
        l_i = l_i * alpha + tl.sum(p, axis=1, keep_dims=True)
        if INVERSE:
            p *= dropped
        acc = acc * alpha + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        m_i = m_new
    # Rows without an allowed key: the output is 0, and lse = inf makes all weights 0 in the backward pass.
    is_empty = l_i == 0.0
    l_nonzero = tl.where(is_empty, 1.0, l_i)
    out = tl.where(is_empty, 0.0, acc / l_nonzero) * keep_scale
    _store_tile(Out, offs_m, stride_om, seqlen_q, offs_dv[None, :], stride_od, head_dim_v, out)
    lse = tl.where(is_empty, float("inf"), m_i + tl.log2(l_nonzero))
    tl.store(Lse + off_bh * seqlen_q + offs_m, lse, mask=offs_m < seqlen_q)


@triton.jit
def _packed(low, high):
    """Return two float32 as halves of an int64, which threads load in half as many instructions."""
    low, high = low.to(tl.int32, bitcast=True), high.to(tl.int32, bitcast=True)
    return (high.to(tl.int64) << 32) | low.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def _of_head(Stats, off_bh, seqlen_q):
    """Return the pointer to the first row statistics of a head."""
    return Stats + off_bh.to(tl.int64) * (tl.cdiv(seqlen_q, PADDED_ROWS) * PADDED_ROWS)


@triton.jit
def _low_float(packed):
    return packed.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _bwd_weights(qk, dp, kept, lse, delta, keep_scale, INVERSE: tl.constexpr):
    """Return the weights after the drop, and the gradient of the logits over `softmax_scale`.

    If INVERSE, `kept` is 1 or, where a weight is dropped, 0; the weights lack the factor `keep_scale`.
    """
    p = tl.exp2(qk - lse)
    p_drop = p
    if INVERSE:
        p_drop = p * kept
        dp = dp * kept * keep_scale
    return p_drop, p * (dp - delta)


@triton.jit(do_not_specialize=["first_bh"])
def bwd_dq_kernel(
    Q, K, V, DO, Out, Lse, Stats, Mask, Bits, DQ,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_dob, stride_doh, stride_dom, stride_dod,
    stride_ob, stride_oh, stride_om, stride_od,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_bits_h, stride_bits_word, stride_bits_row,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, first_bh,
    INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dq for BLOCK_M queries of one head, and Stats, the row statistics of each query for the pass over keys.

    DQ is (B, H, T, d), contiguous. Stats is int64, (B, H, T), padded: lse in the low half, inf for the padding, and
    delta, the sum of output times gradient, in the high half.
    """
    start_m, off_bh = _query_block(IS_CAUSAL) * BLOCK_M, first_bh + tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_m = (start_m + tl.arange(0, BLOCK_M))[:, None]
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    DO += off_b * stride_dob + off_h * stride_doh
    Out += off_b * stride_ob + off_h * stride_oh
    q = _load_tile(Q, offs_m, stride_qm, seqlen_q, offs_d[None, :], stride_qd, head_dim, EVEN)
    do = _load_tile(DO, offs_m, stride_dom, seqlen_q, offs_dv[None, :], stride_dod, head_dim_v, EVEN)
    out = _load_tile(Out, offs_m, stride_om, seqlen_q, offs_dv[None, :], stride_od, head_dim_v, EVEN)
    lse = tl.load(Lse + off_bh * seqlen_q + offs_m, mask=offs_m < seqlen_q, other=float("inf"))
    delta = tl.sum(do.to(tl.float32) * out.to(tl.float32), axis=1, keep_dims=True)
    tl.store(_of_head(Stats, off_bh, seqlen_q) + offs_m, _packed(lse, delta))
    mask_args = (Mask + off_b * stride_mb + off_h * stride_mh, stride_mm, stride_mn)
    bits_args = (Bits + tl.program_id(1).to(tl.int64) * stride_bits_h, stride_bits_word, stride_bits_row)
    end_n = seqlen_k
    if IS_CAUSAL:
        end_n = tl.minimum(seqlen_k, start_m + BLOCK_M)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start_n in range(0, end_n, BLOCK_N):
        offs_n = (start_n + tl.arange(0, BLOCK_N))[None, :]
        k = _load_tile(K, offs_n, stride_kn, seqlen_k, offs_d[:, None], stride_kd, head_dim, EVEN)
        v = _load_tile(V, offs_n, stride_vn, seqlen_k, offs_dv[:, None], stride_vd, head_dim_v, EVEN)
        words = load_words(bits_args, start_n, offs_m, BLOCK_N)
        qk = tl.dot(q, k, input_precision=PRECISION)
        dp = tl.dot(do, v, input_precision=PRECISION)
        dropped = unpack_words(words, BLOCK_N, INVERSE)
        qk = _masked_qk(qk, dropped, start_m, start_n, offs_m, offs_n, seqlen_q, seqlen_k, softmax_scale, mask_args,
                        INVERSE, MASK_TYPE, IS_CAUSAL, EVEN, BLOCK_N)  # fmt: skip
        _, ds = _bwd_weights(qk, dp, dropped, lse, delta, keep_scale, INVERSE)
        dq += tl.dot(ds.to(k.dtype), tl.trans(k), input_precision=PRECISION)
    DQ += off_bh.to(tl.int64) * seqlen_q * head_dim
    _store_tile(DQ, offs_m, head_dim, seqlen_q, offs_d[None, :], 1, head_dim, dq * softmax_scale)


@triton.jit(do_not_specialize=["first_bh"])
def bwd_dkdv_kernel(
    Q, K, V, DO, Stats, Mask, Bits, DK, DV,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_dob, stride_doh, stride_dom, stride_dod,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_bits_h, stride_bits_word, stride_bits_row,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, first_bh,
    INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv for BLOCK_N keys of one head, from transposed bits, whose `stride_bits_row` is that of 64 keys.

    DK is (B, H, S, d), DV (B, H, S, e), both contiguous.
    """
    start_n, off_bh = tl.program_id(0) * BLOCK_N, first_bh + tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_n = (start_n + tl.arange(0, BLOCK_N))[:, None]
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    DO += off_b * stride_dob + off_h * stride_doh
    k = _load_tile(K, offs_n, stride_kn, seqlen_k, offs_d[None, :], stride_kd, head_dim, EVEN)
    v = _load_tile(V, offs_n, stride_vn, seqlen_k, offs_dv[None, :], stride_vd, head_dim_v, EVEN)
    mask_args = (Mask + off_b * stride_mb + off_h * stride_mh, stride_mm, stride_mn)
    bits_args = (Bits + tl.program_id(1).to(tl.int64) * stride_bits_h, stride_bits_word, 1)
    offs_bits = offs_n // 64 * stride_bits_row + offs_n % 64
    begin_m = 0
    if IS_CAUSAL:
        begin_m = start_n // BLOCK_M * BLOCK_M
    dk, dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32), tl.zeros([BLOCK_N, BLOCK_DV], tl.float32)
    for start_m in range(begin_m, seqlen_q, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        q = _load_tile(Q, offs_m[None, :], stride_qm, seqlen_q, offs_d[:, None], stride_qd, head_dim, EVEN)
        do = _load_tile(DO, offs_m[:, None], stride_dom, seqlen_q, offs_dv[None, :], stride_dod, head_dim_v, EVEN)
        offs_m = offs_m[None, :]
        stats = tl.load(_of_head(Stats, off_bh, seqlen_q) + offs_m)
        lse, delta = _low_float(stats), _low_float(stats >> 32)
        words = load_words(bits_args, start_m, offs_bits, BLOCK_M)
        qk = tl.dot(k, q, input_precision=PRECISION)
        dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        dropped = unpack_words(words, BLOCK_M, INVERSE)
        qk = _masked_qk(qk, dropped, start_m, start_n, offs_m, offs_n, seqlen_q, seqlen_k, softmax_scale, mask_args,
                        INVERSE, MASK_TYPE, IS_CAUSAL, EVEN, BLOCK_N)  # fmt: skip
        p_drop, ds = _bwd_weights(qk, dp, dropped, lse, delta, keep_scale, INVERSE)
        dv += tl.dot(p_drop.to(do.dtype), do, input_precision=PRECISION)
        dk += tl.dot(ds.to(q.dtype), tl.trans(q), input_precision=PRECISION)
    DK += off_bh.to(tl.int64) * seqlen_k * head_dim
    DV += off_bh.to(tl.int64) * seqlen_k * head_dim_v
    _store_tile(DK, offs_n, head_dim, seqlen_k, offs_d[None, :], 1, head_dim, dk * softmax_scale)
    _store_tile(DV, offs_n, head_dim_v, seqlen_k, offs_dv[None, :], 1, head_dim_v, dv * keep_scale)
