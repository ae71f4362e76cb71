"""Fused Triton kernels for attention with dropped keys: neither drop mask nor weights are ever stored.

FlashAttention-2 (Dao 2023, Algorithms 1 and 2), with drop decisions recomputed where they are needed, once in the
forward and twice in the backward pass: memory grows linearly with the number of tokens.

Row statistics (m_i, l_i, lse, delta) are columns (BLOCK_M, 1): with 1-D ones Triton 3.9 compiles some variants to far
more instructions.
With ``TRITON_INTERPRET=1`` in the environment before the first import, the kernels run on a CPU, slowly.
"""

from __future__ import annotations

import triton
import triton.language as tl

from harness.attention.kernels.triton_drop_mask import compute_drop_mask

LOG2_E = tl.constexpr(1.4426950408889634)

BOOLEAN = tl.constexpr(1)
ADDITIVE = tl.constexpr(2)


@triton.jit
def _load_tile(ptr, offs_0, stride_0, size_0, offs_1, stride_1, size_1):
    """Load a 2-D tile; offsets are shaped (rows, 1) and (1, columns), and 0 is loaded out of bounds."""
    return tl.load(ptr + offs_0 * stride_0 + offs_1 * stride_1, mask=(offs_0 < size_0) & (offs_1 < size_1), other=0.0)


@triton.jit
def _store_tile(ptr, offs_0, stride_0, size_0, offs_1, stride_1, size_1, values):
    """Store a 2-D tile in the pointer's dtype; arguments as in `_load_tile`."""
    tl.store(ptr + offs_0 * stride_0 + offs_1 * stride_1, values.to(ptr.dtype.element_ty),
             mask=(offs_0 < size_0) & (offs_1 < size_1))  # fmt: skip


@triton.jit
def _masked_qk(q, k, softmax_scale, start_n, offs_m, seqlen_q, seqlen_k, mask_args, MASK_TYPE: tl.constexpr,
               IS_CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Return the masked logits in base 2, before any drop, and the allowed keys; both (BLOCK_M, BLOCK_N)."""
    qk = tl.dot(q, k, input_precision=PRECISION) * (softmax_scale * LOG2_E)
    offs_m, offs_n = offs_m[:, None], start_n + tl.arange(0, BLOCK_N)[None, :]
    in_bounds = (offs_m < seqlen_q) & (offs_n < seqlen_k)
    allowed = in_bounds
    if IS_CAUSAL:
        allowed &= offs_n <= offs_m
    Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max = mask_args
    if MASK_TYPE == BOOLEAN:
        allowed &= tl.load(Mask + offs_m * stride_mm + offs_n * stride_mn, mask=in_bounds, other=0) != 0
    # Add -inf instead of filling with it: filling would hide a NaN.
    qk += tl.where(allowed, 0.0, float("-inf"))
    if MASK_TYPE == ADDITIVE:
        bias = tl.load(Mask + offs_m * stride_mm + offs_n * stride_mn, mask=in_bounds, other=0.0).to(tl.float32)
        mask_row_max = tl.load(MaskRowMax + offs_m * stride_maxm, mask=offs_m < seqlen_q, other=0.0).to(tl.float32)
        qk += bias * LOG2_E
        allowed &= (bias > mask_row_max - masked_logit_gap) & (bias > masked_logit_max)
    return qk, allowed


@triton.jit
def _fwd_inner(q, K, V, stride_kn, stride_kd, stride_vn, stride_vd, fully_dropped, offs_m, seqlen_q, seqlen_k, end_n,
               softmax_scale, head_dim, head_dim_v, mask_args, off_bh, drop_spec, UNIT: tl.constexpr,
               WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
               PRECISION: tl.constexpr):  # fmt: skip
    """Loop over the keys with an online softmax; return m_i, l_i, acc, and which rows keep an allowed key."""
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    m_i = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M, 1], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    any_kept = tl.zeros([BLOCK_M, 1], tl.int32)
    for start_n in range(0, end_n, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = _load_tile(K, offs_n[None, :], stride_kn, seqlen_k, offs_d[:, None], stride_kd, head_dim)
        v = _load_tile(V, offs_n[:, None], stride_vn, seqlen_k, offs_dv[None, :], stride_vd, head_dim_v)
        qk, allowed = _masked_qk(q, k, softmax_scale, start_n, offs_m, seqlen_q, seqlen_k, mask_args, MASK_TYPE,
                                 IS_CAUSAL, BLOCK_N, PRECISION)  # fmt: skip
        drop_mask = compute_drop_mask(start_n, offs_m, off_bh, drop_spec, UNIT, WINDOW, BLOCK_N)
        drop_mask &= fully_dropped == 0
        if not INVERSE:
            any_kept |= tl.max((allowed & (drop_mask == 0)).to(tl.int32), axis=1, keep_dims=True)
            qk += tl.where(drop_mask, float("-inf"), 0.0)
        m_new = tl.maximum(m_i, tl.max(qk, axis=1, keep_dims=True))
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(qk - m_finite)
        alpha = tl.exp2(m_i - m_finite)
        l_i = l_i * alpha + tl.sum(p, axis=1, keep_dims=True)
        if INVERSE:
            p *= tl.where(drop_mask, 0.0, 1.0)
        acc = acc * alpha + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        m_i = m_new
    return m_i, l_i, acc, any_kept


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "num_prefix_tokens"])
def fwd_kernel(
    Q, K, V, Out, Lse, FullyDropped, Mask, MaskRowMax,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_maxb, stride_maxh, stride_maxm,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, masked_logit_gap, masked_logit_max,
    seed_lo, seed_hi, stream, threshold, grid_h, grid_w, num_prefix_tokens,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the output, the log2-sum-exp2, and the fully dropped rows, for BLOCK_M queries of one head.

    Strides are named after the tensor (q, k, v, o: output, m: mask, max: row maximum of the mask) and the axis.
    """
    start_m, off_bh = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    Out += off_b * stride_ob + off_h * stride_oh
    q = _load_tile(Q, offs_m[:, None], stride_qm, seqlen_q, offs_d[None, :], stride_qd, head_dim)
    drop_spec = (seed_lo, seed_hi, stream, threshold, seqlen_k, grid_h, grid_w, num_prefix_tokens)
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    end_n = seqlen_k
    if IS_CAUSAL:
        end_n = tl.minimum(seqlen_k, start_m + BLOCK_M)
    fully_dropped = tl.zeros([BLOCK_M, 1], tl.int32)
    m_i, l_i, acc, any_kept = _fwd_inner(
        q, K, V, stride_kn, stride_kd, stride_vn, stride_vd, fully_dropped, offs_m, seqlen_q, seqlen_k, end_n,
        softmax_scale, head_dim, head_dim_v, mask_args, off_bh, drop_spec, UNIT, WINDOW, INVERSE, MASK_TYPE, IS_CAUSAL,
        BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, PRECISION,
    )  # fmt: skip
    if not INVERSE:
        # Rows whose allowed keys are all dropped keep all of them. They are rare, so the block is recomputed.
        fully_dropped = tl.where(offs_m[:, None] < seqlen_q, 1 - any_kept, 0)
        if tl.max(fully_dropped) > 0:
            m_i, l_i, acc, any_kept = _fwd_inner(
                q, K, V, stride_kn, stride_kd, stride_vn, stride_vd, fully_dropped, offs_m, seqlen_q, seqlen_k, end_n,
                softmax_scale, head_dim, head_dim_v, mask_args, off_bh, drop_spec, UNIT, WINDOW, INVERSE, MASK_TYPE,
                IS_CAUSAL, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, PRECISION,
            )  # fmt: skip
        fully_dropped_ptrs = FullyDropped + off_bh * seqlen_q + offs_m[:, None]
        tl.store(fully_dropped_ptrs, fully_dropped.to(tl.int8), mask=offs_m[:, None] < seqlen_q)
    # Rows without an allowed key: the output is 0, and lse = inf makes all weights 0 in the backward pass.
    is_empty = l_i == 0.0
    l_nonzero = tl.where(is_empty, 1.0, l_i)
    out = tl.where(is_empty, 0.0, acc / l_nonzero) * keep_scale
    _store_tile(Out, offs_m[:, None], stride_om, seqlen_q, offs_dv[None, :], stride_od, head_dim_v, out)
    lse = tl.where(is_empty, float("inf"), m_i + tl.log2(l_nonzero))
    tl.store(Lse + off_bh * seqlen_q + offs_m[:, None], lse, mask=offs_m[:, None] < seqlen_q)


@triton.jit
def _bwd_recompute(q, k, v, do, lse, delta, fully_dropped, start_n, offs_m, seqlen_q, seqlen_k, softmax_scale,
                   keep_scale, mask_args, off_bh, drop_spec, UNIT: tl.constexpr, WINDOW: tl.constexpr,
                   INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr,
                   PRECISION: tl.constexpr):  # fmt: skip
    """Return the weights after the drop and ds, both (BLOCK_M, BLOCK_N); k and v are transposed, (d, BLOCK_N)."""
    qk, _ = _masked_qk(
        q, k, softmax_scale, start_n, offs_m, seqlen_q, seqlen_k, mask_args, MASK_TYPE, IS_CAUSAL, BLOCK_N, PRECISION
    )
    drop_mask = compute_drop_mask(start_n, offs_m, off_bh, drop_spec, UNIT, WINDOW, BLOCK_N)
    drop_mask &= fully_dropped == 0
    if not INVERSE:
        qk += tl.where(drop_mask, float("-inf"), 0.0)
    p = tl.exp2(qk - lse)
    dp = tl.dot(do, v, input_precision=PRECISION)
    p_drop = p
    if INVERSE:
        keep = tl.where(drop_mask, 0.0, keep_scale)
        p_drop = p * keep
        dp *= keep
    return p_drop, p * (dp - delta)


@triton.jit
def _load_row_stats(Lse, Delta, FullyDropped, off_bh, offs_m, seqlen_q):
    """Load lse, delta and fully_dropped, (BLOCK_M, 1); offs_m is shaped so, too."""
    in_bounds = offs_m < seqlen_q
    lse = tl.load(Lse + off_bh * seqlen_q + offs_m, mask=in_bounds, other=float("inf"))
    delta = tl.load(Delta + off_bh * seqlen_q + offs_m, mask=in_bounds, other=0.0)
    fully_dropped = tl.load(FullyDropped + off_bh * seqlen_q + offs_m, mask=in_bounds, other=0).to(tl.int32)
    return lse, delta, fully_dropped


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "num_prefix_tokens"])
def bwd_dq_kernel(
    Q, K, V, DO, Lse, Delta, FullyDropped, Mask, MaskRowMax, DQ,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_dob, stride_doh, stride_dom, stride_dod,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_maxb, stride_maxh, stride_maxm,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, masked_logit_gap, masked_logit_max,
    seed_lo, seed_hi, stream, threshold, grid_h, grid_w, num_prefix_tokens,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dq for BLOCK_M queries of one head; DQ is (B, H, T, d), contiguous."""
    start_m, off_bh = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    DO += off_b * stride_dob + off_h * stride_doh
    q = _load_tile(Q, offs_m[:, None], stride_qm, seqlen_q, offs_d[None, :], stride_qd, head_dim)
    do = _load_tile(DO, offs_m[:, None], stride_dom, seqlen_q, offs_dv[None, :], stride_dod, head_dim_v)
    lse, delta, fully_dropped = _load_row_stats(Lse, Delta, FullyDropped, off_bh, offs_m[:, None], seqlen_q)
    drop_spec = (seed_lo, seed_hi, stream, threshold, seqlen_k, grid_h, grid_w, num_prefix_tokens)
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    end_n = seqlen_k
    if IS_CAUSAL:
        end_n = tl.minimum(seqlen_k, start_m + BLOCK_M)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start_n in range(0, end_n, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = _load_tile(K, offs_n[None, :], stride_kn, seqlen_k, offs_d[:, None], stride_kd, head_dim)
        v = _load_tile(V, offs_n[None, :], stride_vn, seqlen_k, offs_dv[:, None], stride_vd, head_dim_v)
        _, ds = _bwd_recompute(q, k, v, do, lse, delta, fully_dropped, start_n, offs_m, seqlen_q, seqlen_k,
                               softmax_scale, keep_scale, mask_args, off_bh, drop_spec, UNIT, WINDOW, INVERSE,
                               MASK_TYPE, IS_CAUSAL, BLOCK_N, PRECISION)  # fmt: skip
        dq += tl.dot(ds.to(k.dtype), tl.trans(k), input_precision=PRECISION)
    DQ += off_bh.to(tl.int64) * seqlen_q * head_dim
    _store_tile(DQ, offs_m[:, None], head_dim, seqlen_q, offs_d[None, :], 1, head_dim, dq * softmax_scale)


@triton.jit(do_not_specialize=["seed_lo", "seed_hi", "stream", "threshold", "num_prefix_tokens"])
def bwd_dkdv_kernel(
    Q, K, V, DO, Lse, Delta, FullyDropped, Mask, MaskRowMax, DK, DV,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_dob, stride_doh, stride_dom, stride_dod,
    stride_mb, stride_mh, stride_mm, stride_mn, stride_maxb, stride_maxh, stride_maxm,
    num_heads, seqlen_q, seqlen_k, head_dim, head_dim_v, softmax_scale, keep_scale, masked_logit_gap, masked_logit_max,
    seed_lo, seed_hi, stream, threshold, grid_h, grid_w, num_prefix_tokens,
    UNIT: tl.constexpr, WINDOW: tl.constexpr, INVERSE: tl.constexpr, MASK_TYPE: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv for BLOCK_N keys of one head; DK is (B, H, S, d), DV (B, H, S, e), both contiguous."""
    start_n, off_bh = tl.program_id(0) * BLOCK_N, tl.program_id(1)
    off_b, off_h = (off_bh // num_heads).to(tl.int64), (off_bh % num_heads).to(tl.int64)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    offs_d, offs_dv = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    DO += off_b * stride_dob + off_h * stride_doh
    k = _load_tile(K, offs_n[None, :], stride_kn, seqlen_k, offs_d[:, None], stride_kd, head_dim)
    v = _load_tile(V, offs_n[None, :], stride_vn, seqlen_k, offs_dv[:, None], stride_vd, head_dim_v)
    drop_spec = (seed_lo, seed_hi, stream, threshold, seqlen_k, grid_h, grid_w, num_prefix_tokens)
    Mask += off_b * stride_mb + off_h * stride_mh
    MaskRowMax += off_b * stride_maxb + off_h * stride_maxh
    mask_args = (Mask, stride_mm, stride_mn, MaskRowMax, stride_maxm, masked_logit_gap, masked_logit_max)
    begin_m = 0
    if IS_CAUSAL:
        begin_m = start_n // BLOCK_M * BLOCK_M
    dk, dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32), tl.zeros([BLOCK_N, BLOCK_DV], tl.float32)
    for start_m in range(begin_m, seqlen_q, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        q = _load_tile(Q, offs_m[:, None], stride_qm, seqlen_q, offs_d[None, :], stride_qd, head_dim)
        do = _load_tile(DO, offs_m[:, None], stride_dom, seqlen_q, offs_dv[None, :], stride_dod, head_dim_v)
        lse, delta, fully_dropped = _load_row_stats(Lse, Delta, FullyDropped, off_bh, offs_m[:, None], seqlen_q)
        p_drop, ds = _bwd_recompute(q, k, v, do, lse, delta, fully_dropped, start_n, offs_m, seqlen_q, seqlen_k,
                                    softmax_scale, keep_scale, mask_args, off_bh, drop_spec, UNIT, WINDOW, INVERSE,
                                    MASK_TYPE, IS_CAUSAL, BLOCK_N, PRECISION)  # fmt: skip
        dv += tl.dot(tl.trans(p_drop.to(do.dtype)), do, input_precision=PRECISION)
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision=PRECISION)
    DK += off_bh.to(tl.int64) * seqlen_k * head_dim
    DV += off_bh.to(tl.int64) * seqlen_k * head_dim_v
    _store_tile(DK, offs_n[:, None], head_dim, seqlen_k, offs_d[None, :], 1, head_dim, dk * softmax_scale)
    _store_tile(DV, offs_n[:, None], head_dim_v, seqlen_k, offs_dv[None, :], 1, head_dim_v, dv)
