"""Operations of torch that take less time on a CPU while a trial runs: dropout, matrix products, and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from harness.attention.kernels import cpu_sgemm
from harness.attention.kernels.c_library import load_library, overridden
from harness.attention.kernels.cpu_bernoulli import fast_bernoulli
from harness.attention.kernels.cpu_fused import FusedAttention
from harness.attention.kernels.cpu_sgemm import fast_sgemm
from harness.attention.reference.drop_masks import drop_nothing

MIN_MULTIPLICATIONS = 2**19
"""Attention with fewer in q kᵀ is left to torch: calling another function would take longer."""


@contextmanager
def fast_torch() -> Iterator[None]:
    """Let operations of torch on a CPU take less time, with the same random numbers."""
    with fast_bernoulli(), fast_sgemm(), fast_sdpa():
        yield


@contextmanager
def fast_sdpa() -> Iterator[None]:
    """Let SDPA take less time where torch's BLAS does not use the processor's vectors.

    Results differ from torch's in the last digits. Half precision is computed in float32.
    """
    if not cpu_sgemm.is_used() or load_library("cpu_fused") is None:
        yield
        return
    name = "_scaled_dot_product_flash_attention_for_cpu"
    with overridden(name, _forward), overridden(f"{name}_backward", _backward):
        yield


def _forward(
    torchs: Callable[..., tuple[Tensor, Tensor]], q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0,
    is_causal: bool = False, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return attention (B, H, T, e) and the log-sum-exp of its logits (B, H, T) as torch's kernel."""
    if not _is_supported(q, k, v, attn_mask, dropout_p):
        return torchs(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    out, (row_max, row_scale), _ = _fused(q, k, v, attn_mask, causal=is_causal, scale=scale).forward()
    return out, row_max - row_scale.log()


def _backward(
    torchs: Callable[..., tuple[Tensor, Tensor, Tensor]], d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor,
    lse: Tensor, dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v."""
    if not _is_supported(q, k, v, attn_mask, dropout_p):
        return torchs(d_out, q, k, v, out, lse, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    kernel = _fused(q, k, v, attn_mask, causal=is_causal, scale=scale)
    return kernel.backward(d_out, out, torch.stack((lse, torch.ones_like(lse))), lse)


def _is_supported(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float) -> bool:
    batch, heads, seqlen_q, head_dim = q.shape
    return (
        q.dtype == k.dtype == v.dtype != torch.float64
        and (mask is None or mask.dtype in (torch.bool, torch.float32, q.dtype))
        and dropout_p == 0.0
        and k.shape[:2] == (batch, heads)
        and batch * heads * seqlen_q * k.shape[2] * head_dim >= MIN_MULTIPLICATIONS
        and v.numel() > 0
    )


def _fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool, scale: float | None
) -> FusedAttention:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return FusedAttention(q, k, v, mask, drop_nothing(), 1.0, causal=causal, scale=scale)
