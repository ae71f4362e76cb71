"""Launch of the Triton kernels: shapes, strides and block sizes."""

from __future__ import annotations

from ctypes import c_int32
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from harness.attention.reference.drop_masks import UNITS, DropSpec, start_threshold
from harness.attention.reference.sdpa import MASKED_LOGIT_GAP

MAX_WINDOW = 33
"""Window starts are searched in a word of 32 keys and in the previous one."""
MAX_HEAD_DIM = 256
"""Limited by the shared memory of a multiprocessor."""
BLOCK_SIZES = (128, 64), (64, 32), (32, 32)
"""Queries and keys per block; the first pair that fits in a multiprocessor's shared memory is used."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@cache
def interpreted() -> bool:
    """Return whether the kernels run in Triton's interpreter, as in tests on a CPU."""
    if find_spec("triton") is None:
        return False
    from triton import knobs

    return bool(knobs.runtime.interpret)


def unavailable_reason(device: str) -> str | None:
    """Return why the kernels can compute nothing on a type of device, or None if they can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if device != "cuda" and not (device == "cpu" and interpreted()):
        return f"its kernels run on CUDA, not on {device}"
    return None


def unsupported_reason(q: Tensor, v: Tensor, spec: DropSpec) -> str | None:
    """Return why the kernels cannot compute a call on a device that they run on, or None if they can."""
    if spec.unit == "cross":
        return "its kernels do not support unit 'cross'"
    if spec.window > MAX_WINDOW:
        return f"a window of {spec.window} keys is larger than {MAX_WINDOW}"
    if q.dtype not in DTYPES:
        supported = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        return f"its kernels support {supported}, not {q.dtype}"
    if max(q.shape[-1], v.shape[-1]) > MAX_HEAD_DIM:
        return f"a head dimension of {max(q.shape[-1], v.shape[-1])} is larger than {MAX_HEAD_DIM}"
    return None


class TritonAttention:
    """One call, forward or backward with the same spec; arguments as in `cpu_fused.FusedAttention`."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = q, k, v
        self.strides = *q.stride(), *k.stride(), *v.stride()
        shape = *q.shape[:3], k.shape[2]
        mask_type, self.mask, self.mask_row_max, masked_logit_max = 0, q, q, 0.0
        mask_strides: tuple[int, ...] = (0,) * 7
        if mask is not None:
            mask_type, self.mask = 1, mask.expand(shape)
            mask_strides = *self.mask.stride(), 0, 0, 0
            if mask.dtype == torch.bool:
                self.mask = self.mask.view(torch.uint8)
            else:
                mask_type, masked_logit_max = 2, torch.finfo(mask.dtype).min / 2
                self.mask_row_max = mask.amax(dim=-1).expand(shape[:3])
                mask_strides = *self.mask.stride(), *self.mask_row_max.stride()
        seed = int(spec.philox_seed)
        # Of each, the kernels get the low 32 bits as a signed integer.
        words = seed, seed >> 32, spec.stream, int(start_threshold(seed, spec.stream, spec.start_prob))
        self.scalars = (
            *mask_strides, q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], scale, keep_scale or 1.0,
            MASKED_LOGIT_GAP, masked_logit_max, *(c_int32(word).value for word in words),
            *(spec.grid or (1, 1)), spec.num_prefix_tokens,
        )  # fmt: skip
        block_d, block_dv = (max(16, 1 << (size - 1).bit_length()) for size in (q.shape[3], v.shape[3]))
        exact = q.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
        self.constants: dict[str, Any] = {
            "UNIT": UNITS.index(spec.unit),
            "WINDOW": min(spec.window, *spec.grid) if spec.unit == "block" and spec.grid else spec.window,
            "INVERSE": keep_scale is not None, "MASK_TYPE": mask_type, "IS_CAUSAL": causal, "BLOCK_D": block_d,
            "BLOCK_DV": block_dv, "PRECISION": "ieee" if exact else "tf32",
        }  # fmt: skip
        self.block_sizes = BLOCK_SIZES[1 if max(block_d, block_dv) > 128 or q.dtype == torch.float32 else 0 :]

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), and per row (B, H, T) the log2-sum-exp2 and whether it was fully dropped."""
        from harness.attention.kernels import triton_kernels

        batch, heads, seqlen_q, _ = self.q.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = self.q.new_empty(batch, seqlen_q, heads, self.v.shape[-1]).transpose(1, 2)
        lse = self.q.new_empty(batch, heads, seqlen_q, dtype=torch.float32)
        fully_dropped = self.q.new_zeros(batch, heads, seqlen_q, dtype=torch.int8)
        tensors = self.q, self.k, self.v, out, lse, fully_dropped, self.mask, self.mask_row_max
        self._launch(triton_kernels.fwd_kernel, seqlen_q, *tensors, *self.strides, *out.stride(), *self.scalars)
        return out, lse, fully_dropped

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, fully_dropped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        from harness.attention.kernels import triton_kernels

        dq, dk, dv = (
            torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (self.q, self.k, self.v)
        )
        delta = (d_out.float() * out.float()).sum(-1)
        tensors = self.q, self.k, self.v, d_out, lse, delta, fully_dropped, self.mask, self.mask_row_max
        scalars = *self.strides, *d_out.stride(), *self.scalars
        self._launch(triton_kernels.bwd_dq_kernel, self.q.shape[2], *tensors, dq, *scalars)
        self._launch(triton_kernels.bwd_dkdv_kernel, self.k.shape[2], *tensors, dk, dv, *scalars, over_keys=True)
        return dq, dk, dv

    def _launch(self, kernel: Any, rows: int, *args: Any, over_keys: bool = False) -> None:
        """Launch a kernel over blocks of `rows` queries, or keys if `over_keys`, with the largest blocks that fit."""
        from triton.runtime.errors import OutOfResources

        for large, small in self.block_sizes:
            block_m, block_n = (small, large) if over_keys else (large, small)
            grid = -(-rows // large), self.q.shape[0] * self.q.shape[1]
            try:
                kernel[grid](*args, BLOCK_M=block_m, BLOCK_N=block_n, **self.constants)
            except OutOfResources:
                if (large, small) == BLOCK_SIZES[-1]:
                    raise
            else:
                return
