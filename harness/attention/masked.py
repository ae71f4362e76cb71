"""Attention with an additive drop mask that is made again for the backward pass, for some heads at a time.

Drop decisions depend on the seed and the position alone, so no mask is kept between the passes. In each of them, the
mask takes as little memory as the heads need that torch's kernel computes at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from harness.attention.kernels.cpu_masks import MaskFiller, lse_dtype
from harness.attention.reference.drop_masks import DropSpec, part_of_drop_mask
from harness.attention.reference.eager import merge_keep_mask
from harness.attention.reference.sdpa import is_transformed, with_causal

MAX_MASK_NUMEL = 2**17
"""Elements of the mask per thread, 512 KiB in float32, or those of one head if these are more: in the backward pass,
torch's kernel gives each thread whole heads."""

Part = tuple[slice, slice]
"""Samples and heads."""


def supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Return whether torch computes a call by its fused CPU kernel, with a mask that needs no gradients."""
    return (
        q.device.type == "cpu"
        and _flash_enabled()
        and not is_transformed()
        and not (mask is not None and mask.requires_grad)
        and q.shape[:2] == k.shape[:2] == v.shape[:2]
        and q.shape[-1] == v.shape[-1]
        and q.dtype == k.dtype == v.dtype
        and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        and min(q.numel(), k.numel()) > 0
    )


def is_small(shape: Sequence[int]) -> bool:
    """Return whether a mask (B, H, T or 1, keys) is made at once: storing it takes less time, and little memory."""
    return math.prod(shape) <= MAX_MASK_NUMEL


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _flash_enabled() -> bool:
    enabled: bool = torch.backends.cuda.flash_sdp_enabled()  # the switch of `sdpa_kernel`, on CPUs, too
    return enabled


class MaskedAttention:
    """One call, forward or backward with the same spec, for `renormalize`.

    Arguments are those of `harness.attention.dispatch.drop_attention`, except:

    - `is_compiled`: the C kernel makes the mask, otherwise torch operations do.
    - `round_mask`: the mask is rounded to the dtype of `q`, as SDPA does under autocast.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, *, causal: bool,
        scale: float | None, is_compiled: bool, round_mask: bool,
    ) -> None:  # fmt: skip
        self.inputs, self.spec, self.scale, self.causal, self.round_mask = (q, k, v), spec, scale, causal, round_mask
        batch, heads, seqlen_q, _ = q.shape
        rows = 1 if rows_share_keys(spec, mask, causal=causal) else seqlen_q
        self.shape = batch, heads, rows, k.shape[2]
        self.mask = None if mask is None else mask[(None,) * (4 - mask.dim())].expand(batch, heads, -1, -1)
        self.filler = MaskFiller(spec, self.shape, mask, causal=causal) if is_compiled else None

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, d), the log-sum-exp per row (B, H, T), and an empty tensor."""
        q, _, _ = self.inputs
        batch, heads, seqlen_q, _ = q.shape
        out = torch.empty_like(q)
        lse = q.new_empty(batch, seqlen_q, heads, dtype=lse_dtype(q)).transpose(1, 2)
        for part, mask in self._masks():
            own_out, own_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *(tensor[part] for tensor in self.inputs), attn_mask=mask, scale=self.scale
            )
            out[part], lse[part] = own_out, own_lse
        return out, lse, q.new_empty(0)

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        dq, dk, dv = (
            tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2)  # the layout of torch's kernel
            for tensor in self.inputs
        )
        for part, mask in self._masks():
            own = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                d_out[part], *(tensor[part] for tensor in self.inputs), out[part], lse[part], 0.0, False,
                attn_mask=mask, scale=self.scale,
            )  # fmt: skip
            dq[part], dk[part], dv[part] = own
        return dq, dk, dv

    def _masks(self) -> Iterator[tuple[Part, Tensor]]:
        """Yield parts of all heads, and their additive masks, which are valid until the next one."""
        batch, heads, rows, seqlen_k = self.shape
        count = torch.get_num_threads() * max(1, MAX_MASK_NUMEL // (rows * seqlen_k))
        samples, count = -(-count // heads), min(count, heads)
        for sample in range(0, batch, samples):
            for head in range(0, heads, count):
                part = slice(sample, min(batch, sample + samples)), slice(head, min(heads, head + count))
                yield part, self._make_mask(part)

    def _make_mask(self, part: Part) -> Tensor:
        samples, heads = part
        shape = samples.stop - samples.start, heads.stop - heads.start, *self.shape[2:]
        off_bh = samples.start * self.shape[1] + heads.start
        q = self.inputs[0]
        if self.filler is not None:
            mask = torch.empty(shape)
            self.filler.fill(mask.flatten(0, 1), off_bh, 0)
            mask = mask.to(lse_dtype(q))
        else:
            allowed = None if self.mask is None else self.mask[part]
            if self.causal:
                allowed = with_causal(allowed, q.shape[2], shape[3], q.device)
            keep_mask = ~part_of_drop_mask(self.spec, shape, off_bh)
            mask = merge_keep_mask(keep_mask, allowed, q.dtype)
            mask = mask if mask.dtype == q.dtype else mask.to(lse_dtype(q))
        return mask.to(q.dtype) if self.round_mask else mask


def rows_share_keys(spec: DropSpec, mask: Tensor | None, *, causal: bool) -> bool:
    """Return whether all queries of a head may attend to the same keys."""
    return spec.unit == "column" and not causal and (mask is None or mask.dim() < 2 or mask.shape[-2] == 1)
