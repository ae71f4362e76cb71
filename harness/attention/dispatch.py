"""Attention with dropped keys as one autograd operation, computed by the fastest backend.

`dropbench.harness.attention.backends` describes the backends. All compute the same function of the same random bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dropbench.harness.attention.backends import select_backend
from dropbench.harness.attention.call import Call
from dropbench.harness.attention.gathered import gathered_attention, should_gather
from dropbench.harness.attention.kernels.cpu_fused import FusedAttention
from dropbench.harness.attention.kernels.triton_launch import TritonAttention
from dropbench.harness.attention.kernels.triton_layout import saved_bits_shape
from dropbench.harness.attention.reference import eager
from dropbench.harness.attention.reference.drop_masks import (
    SPEC_SCHEMA,
    DropSpec,
    drop_mask,
    drop_nothing,
    number_as_tensor,
    unpack_spec,
)
from dropbench.harness.attention.reference.sdpa import autocast, is_autocast_enabled
from dropbench.harness.attention.reference.units import Rescale


def drop_attention(call: Call, spec: DropSpec, rescale: Rescale, ratio: float, *, top: int = 0) -> Tensor:
    """Return attention (B, H, T, e) to the kept keys; `harness.regularizers.drop.AttentionDrop` documents the modes.

    `spec` is what is dropped. `inverse` divides by 1 − `ratio`. With `top` above 0, only those of these keys are
    dropped that have one of the `top` largest logits of their row; their logits become 0, and nothing is rescaled.
    """
    q, k, v = autocast(call.q, call.k, call.v)
    mask, causal, scale = call.mask, call.causal, call.scale
    backend = select_backend(q, k, v, spec, rescale, mask, top)
    if backend == "eager":
        merged = call.with_merged_mask().mask
        batch, heads, seqlen_q, _ = q.shape
        keep_mask = ~drop_mask(spec, (batch, heads, seqlen_q, k.shape[-2]), q.device)
        if top:
            return eager.zero_top_attention(q, k, v, keep_mask, top, mask=merged, scale=scale)
        return eager.drop_attention(q, k, v, keep_mask, rescale, ratio, mask=merged, scale=scale)
    can_gather = backend == "cpu" and rescale == "renormalize" and not top and not _is_watched(q, k, v)
    if can_gather and should_gather(q, k, v, spec, mask, causal=causal):
        return gathered_attention(q, k, v, spec, mask=mask, scale=scale)
    keep_scale = 1.0 / (1.0 - ratio) if rescale == "inverse" else None
    out, *_ = _attention(q, k, v, mask, keep_scale, spec, (backend, causal, scale, rescale == "detached", top))
    return out


def attention_and_entropy(call: Call) -> tuple[Tensor, Tensor] | None:
    """Return plain attention (B, H, T, e) and the entropy of its rows in nats (B, H, T), without stored weights.

    With the mean logit μ of a row under its weights, which is the query times the weighted mean of the keys, the
    entropy is lse − μ. Its gradient by the logit s of a weight w is −w · (s − μ): that of −μ alone if only w depends on
    s. Hence attention with the keys as further values computes both.

    None if the fused kernel on CPUs does not support the call.
    """
    nothing, q, k, v, mask, causal, scale = drop_nothing(), call.q, call.k, call.v, call.mask, call.causal, call.scale
    if q.dtype != torch.float32 or is_autocast_enabled(q.device.type):
        return None
    if mask is not None and mask.dtype != torch.bool:
        return None
    if select_backend(q, k, v, nothing, "detached", mask) != "cpu":  # which needs the same kernel
        return None
    values = torch.cat([v, k.detach()], dim=-1)
    out, stats, _ = _attention(q, k, values, mask, None, nothing, ("cpu", causal, scale, False, 0))
    out, mean_key = out.split((v.shape[-1], k.shape[-1]), dim=-1)
    row_max, row_scale = stats.detach()
    lse = torch.where(row_scale > 0.0, row_max - row_scale.log(), 0.0)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return out, lse - scale * (q.detach() * mean_key).sum(dim=-1)


INPUTS_SCHEMA = (
    f"Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? keep_scale, {SPEC_SCHEMA}, "
    "str backend, bool causal, float? scale, bool detached, SymInt top"
)
"""Arguments of the forward and, after its own, of the backward operation; see `_kernel`."""
TAGS = (torch.Tag.cudagraph_unsafe,)
"""The seed is a number on the CPU, so a CUDA graph would repeat the decisions of its capture."""


Options = tuple[str, bool, float | None, bool, int]
"""The last arguments of the schema, from `backend` on."""


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keep_scale: float | None, spec: DropSpec, options: Options
) -> TritonAttention | FusedAttention:
    backend, causal, scale, detached, top = options
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if backend == "triton":
        return TritonAttention(q, k, v, mask, spec, keep_scale, causal=causal, scale=scale)
    return FusedAttention(q, k, v, mask, spec, keep_scale, causal=causal, scale=scale, detached=detached, top=top)


def _unpacked_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, factor: Tensor | None, *arguments: Any
) -> TritonAttention | FusedAttention:
    *flat_spec, backend, causal, scale, detached, top = arguments
    keep_scale = None if factor is None else float(factor)
    return _kernel(q, k, v, mask, keep_scale, unpack_spec(*flat_spec), (backend, causal, scale, detached, top))


@torch.library.custom_op(
    "dropbench::drop_attention", mutates_args=(), schema=f"({INPUTS_SCHEMA}) -> (Tensor, Tensor, Tensor)", tags=TAGS
)
def _forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _unpacked_kernel(*inputs).forward()


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keep_scale: Tensor | None, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, _, unit, *_, backend, causal, _, detached, _ = arguments
    batch, heads, seqlen_q, _ = q.shape
    out = q.new_empty(batch, seqlen_q, heads, v.shape[-1]).transpose(1, 2)
    stats = q.new_empty(batch, heads, seqlen_q, dtype=torch.float32)
    if backend == "triton":
        saved = saved_bits_shape(q, k, mask, unit, inverse=keep_scale is not None, causal=causal)
        return out, stats, q.new_empty(saved, dtype=torch.int64)
    return out, stats.new_empty((4 if detached else 2, *stats.shape)), q.new_empty(0)


@torch.library.custom_op(
    "dropbench::drop_attention_backward", mutates_args=(),
    schema=f"(Tensor d_out, Tensor out, Tensor lse, Tensor saved, {INPUTS_SCHEMA}) -> (Tensor, Tensor, Tensor)",
    tags=TAGS,
)  # fmt: skip
def _backward(d_out: Tensor, out: Tensor, lse: Tensor, saved: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _unpacked_kernel(*inputs).backward(d_out, out, lse, saved)


@_backward.register_fake
def _(
    d_out: Tensor, out: Tensor, lse: Tensor, saved: Tensor, q: Tensor, k: Tensor, v: Tensor,
    *arguments: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    *_, backend, _, _, _, _ = arguments
    if backend == "triton":
        dq, dk, dv = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
        return dq, dk, dv
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.constants = inputs[7:]
    ctx.save_for_backward(*output, *inputs[:7])


def _differentiate(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Any, ...]:
    grads = torch.ops.dropbench.drop_attention_backward(d_out, *ctx.saved_tensors, *ctx.constants)
    return *grads, *(None,) * (4 + len(ctx.constants))


_forward.register_autograd(_differentiate, setup_context=_setup_context)


class _Attention(torch.autograd.Function):
    """The operation without torch's dispatcher, which takes longer than the kernels of a small call."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keep_scale: float | None, spec: DropSpec,
        options: Options,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        output = _kernel(q, k, v, mask, keep_scale, spec, options).forward()
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output, q, k, v, mask)
        ctx.constants = keep_scale, spec, options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Any, ...]:
        out, lse, saved, *tensors = ctx.saved_tensors
        return *_kernel(*tensors, *ctx.constants).backward(d_out, out, lse, saved), None, None, None, None


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keep_scale: float | None, spec: DropSpec, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Call the operation, through torch's dispatcher if it `_is_watched`."""
    results: tuple[Tensor, Tensor, Tensor]
    if _is_watched(q, k, v):
        factor = None if keep_scale is None else number_as_tensor(keep_scale)
        results = torch.ops.dropbench.drop_attention(q, k, v, mask, factor, *spec.flatten(), *options)
    else:
        results = _Attention.apply(q, k, v, mask, keep_scale, spec, options)  # type: ignore[no-untyped-call]
    return results


def _is_watched(*tensors: Tensor) -> bool:
    """Return whether something watches operations, such as a compiler."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or not all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
    )
