"""Attention from its definition: logits, weights and masks, on top of torch's `scaled_dot_product_attention`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

MASKED_LOGIT_GAP = 80.0
"""A key counts as masked if an additive mask puts it more than this below the maximum of its row: its weight is then
below e^-80 = 2e-35 of the maximum's, numerically 0. Libraries mask with -inf, the dtype's minimum, -1e9, -1e4 or -100
(Swin)."""

SIMD_WIDTH = 16
"""Without a mask, torch's CPU kernel (as of 2.13) returns 0 for a row of NaN that is shorter than a vector. With a mask
of zeros it returns NaN, and is otherwise bitwise equal."""

_NEGATIVE_INFINITY = {
    torch.float16: (torch.int16, -(2**10)),
    torch.bfloat16: (torch.int16, -(2**7)),
    torch.float32: (torch.int32, -(2**23)),
    torch.float64: (torch.int64, -(2**52)),
}
"""Bit pattern of -inf as an integer: sign and exponent bits are all ones."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_transformed() -> bool:
    """Return whether forward-mode AD or a `torch.func` transform is active. Fused kernels support neither."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return SDPA with a mask in any floating dtype, under forward-mode AD and `torch.func` transforms, too."""
    mask = fit_mask(mask, q.dtype)
    if mask is not None and mask.dtype == torch.bool and q.device.type == "cuda":
        # In half precision, cuDNN (9.19) gives queries whose keys a boolean mask all forbids the mean of the values.
        mask = additive(mask, q.dtype)
    with sdpa_kernel(SDPBackend.MATH) if is_transformed() else nullcontext():
        return scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale)


def fit_mask(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Convert an additive mask that SDPA would refuse for queries of `dtype`, to that dtype but at least to float32."""
    at_least = torch.promote_types(dtype, torch.float32)
    return mask if mask is None or mask.dtype in (torch.bool, dtype, at_least) else mask.to(at_least)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast tensors as autocast, if enabled, does for SDPA; it does not apply to custom operations."""
    device = tensors[0].device.type
    if not is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors)


def is_autocast_enabled(device: str) -> bool:
    """Return whether autocast is enabled for a type of device; torch has none for tensors without data."""
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Return a context in which autocast is disabled for a type of device."""
    return torch.autocast(device, enabled=False) if is_autocast_enabled(device) else nullcontext()


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return SDPA that accepts a mask and `causal` together and propagates every NaN; arguments as in `attend`."""
    if mask is None and q.device.type == "cpu" and k.shape[-2] < SIMD_WIDTH:
        mask = q.new_zeros(1, k.shape[-2])
    if causal and mask is not None:
        mask, causal = with_causal(mask, q.shape[-2], k.shape[-2], q.device), False
    return sdpa(q, k, v, mask=mask, causal=causal, scale=scale, dropout=dropout)


def with_causal(mask: Tensor | None, seqlen_q: int, seqlen_k: int, device: torch.device) -> Tensor:
    """Merge `mask` with the causal mask (T, S), aligned at the first query and key; the mask's dtype is preserved."""
    return with_allowed(mask, torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device).tril())


def with_allowed(mask: Tensor | None, allowed: Tensor) -> Tensor:
    """Merge `mask` with the allowed pairs, boolean; the mask's dtype is preserved."""
    if mask is None:
        return allowed
    return mask & allowed if mask.dtype == torch.bool else mask.masked_fill(~allowed, float("-inf"))


def allowed_keys(mask: Tensor) -> Tensor:
    """Return the keys that a mask allows, boolean, of its shape; additive masks: see `MASKED_LOGIT_GAP`."""
    if mask.dtype == torch.bool:
        return mask
    mask = mask.detach()
    row_max = mask.amax(dim=-1, keepdim=True)
    # The second condition excludes rows that contain nothing but the dtype's minimum.
    return (mask > row_max - MASKED_LOGIT_GAP) & (mask > torch.finfo(mask.dtype).min / 2)


def additive(keep_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask to add to logits: 0 where `keep_mask`, -inf elsewhere."""
    # 1 or 0 times the bit pattern of -inf: equal to `where`, in a tenth of the time on CPU.
    integer, negative_infinity = _NEGATIVE_INFINITY[dtype]
    return (~keep_mask).view(torch.uint8).to(integer).mul_(negative_infinity).view(dtype)


def attention_logits(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return q kᵀ · scale with the mask applied, (B, H, T, S)."""
    logits = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    return mask_logits(logits, mask, causal=causal)


def mask_logits(logits: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
    """Add a mask to logits or to a bias of logits, (…, T, S)."""
    if causal:
        mask = with_causal(mask, logits.shape[-2], logits.shape[-1], logits.device)
    if mask is None:
        return logits
    # Add -inf instead of filling with it: filling would hide a NaN.
    return logits + (additive(mask, logits.dtype) if mask.dtype == torch.bool else mask)


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return the unregularized attention weights (B, H, T, S); rows without an allowed key are 0, as in SDPA."""
    logits = attention_logits(q, k, mask=mask, causal=causal, scale=scale)
    return logits.softmax(dim=-1) if mask is None else masked_softmax(logits)


def masked_softmax(logits: Tensor) -> Tensor:
    """Return the softmax over the last axis. Rows of -inf give 0 in value and gradient; NaN stays NaN."""
    empty = logits.detach().amax(dim=-1, keepdim=True) == float("-inf")
    return logits.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
