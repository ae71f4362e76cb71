"""Launch of the Triton kernels: shapes, strides, block sizes, and memory for the stored decisions."""

from __future__ import annotations

from collections.abc import Iterator
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
MAX_BITS = 2**27
"""Bytes of stored decisions per call, or those of one head if they take more: 1 bit per query and key."""
STARTS_BLOCK = 16, 128
"""Queries and bytes, of eight keys each, per block of `window_starts_kernel`."""
BITS_BLOCK = 32, 8
"""Queries and words, of 32 keys each, per step of `drop_bits_kernel`."""
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


def saved_bits_shape(
    q: Tensor, k: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *, causal: bool
) -> tuple[int, int, int]:
    """Return the shape of the bits that the forward pass saves for the backward pass: (heads, rows, 32-bit words).

    There is one row for all queries if they may attend to the same keys. There are 0 heads if the bits of all take more
    than `MAX_BITS`; the backward pass makes them again.
    """
    num_heads, seqlen_q, row_words = q.shape[0] * q.shape[1], q.shape[2], 4 * -(-k.shape[2] // 128)
    rows_share_mask = keep_scale is not None or not (
        causal or (mask is not None and mask.dim() > 1 and mask.shape[-2] > 1)
    )
    rows = 1 if spec.unit == "column" and rows_share_mask else seqlen_q
    return num_heads if 4 * num_heads * rows * row_words <= MAX_BITS else 0, rows, row_words


class TritonAttention:
    """One call, forward or backward with the same spec; arguments as in `cpu_fused.FusedAttention`."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v, self.spec = q, k, v, spec
        self.strides = *q.stride(), *k.stride(), *v.stride()
        shape = *q.shape[:3], k.shape[2]
        mask_type, self.mask, self.mask_row_max, masked_logit_max = 0, q, q, 0.0
        self.mask_strides: tuple[int, ...] = (0,) * 7
        if mask is not None:
            mask_type, self.mask = 1, mask.expand(shape)
            self.mask_strides = *self.mask.stride(), 0, 0, 0
            if mask.dtype == torch.bool:
                self.mask = self.mask.view(torch.uint8)
            else:
                mask_type, masked_logit_max = 2, torch.finfo(mask.dtype).min / 2
                self.mask_row_max = mask.amax(dim=-1).expand(shape[:3])
                self.mask_strides = *self.mask.stride(), *self.mask_row_max.stride()
        self.masked_logits = MASKED_LOGIT_GAP, masked_logit_max
        self.starts_rows = 1 if spec.unit == "column" else shape[2]
        self.saved_shape = saved_bits_shape(q, k, mask, spec, keep_scale, causal=causal)
        _, self.bits_rows, self.row_words = self.saved_shape
        stride_bits_m = 0 if self.bits_rows == 1 else self.row_words
        self.scalars = (
            *self.mask_strides[:4], self.bits_rows * self.row_words, stride_bits_m, *shape[1:], q.shape[3], v.shape[3],
            scale, keep_scale or 1.0,
        )  # fmt: skip
        block_d, block_dv = (max(16, 1 << (size - 1).bit_length()) for size in (q.shape[3], v.shape[3]))
        exact = q.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
        self.mask_constants: dict[str, Any] = {
            "INVERSE": keep_scale is not None, "MASK_TYPE": mask_type, "IS_CAUSAL": causal
        }  # fmt: skip
        self.constants: dict[str, Any] = {
            **self.mask_constants, "BLOCK_D": block_d, "BLOCK_DV": block_dv, "PRECISION": "ieee" if exact else "tf32"
        }  # fmt: skip
        self.block_sizes = BLOCK_SIZES[1 if max(block_d, block_dv) > 128 or q.dtype == torch.float32 else 0 :]

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), the log2-sum-exp2 of each row (B, H, T), and the saved bits."""
        from harness.attention.kernels import triton_kernels

        batch, heads, seqlen_q, _ = self.q.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = self.q.new_empty(batch, seqlen_q, heads, self.v.shape[-1]).transpose(1, 2)
        lse = self.q.new_empty(batch, heads, seqlen_q, dtype=torch.float32)
        saved = self.q.new_empty(self.saved_shape, dtype=torch.int32)
        for first_bh, bits in self.drop_bits(saved):
            args = self.q, self.k, self.v, out, lse, self.mask, bits, *self.strides, *out.stride(), *self.scalars
            self._launch(triton_kernels.fwd_kernel, (seqlen_q, len(bits)), *args, first_bh)
        return out, lse, saved

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        from harness.attention.kernels import triton_kernels

        dq, dk, dv = (
            torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (self.q, self.k, self.v)
        )
        delta = (d_out.float() * out.float()).sum(-1)
        seqlen_q, seqlen_k = self.q.shape[2], self.k.shape[2]
        for first_bh, bits in [(0, saved)] if len(saved) else self.drop_bits(saved):
            tensors = self.q, self.k, self.v, d_out, lse, delta, self.mask, bits
            scalars = *self.strides, *d_out.stride(), *self.scalars, first_bh
            self._launch(triton_kernels.bwd_dq_kernel, (seqlen_q, len(bits)), *tensors, dq, *scalars)
            self._launch(
                triton_kernels.bwd_dkdv_kernel, (seqlen_k, len(bits)), *tensors, dk, dv, *scalars, over_keys=True
            )
        return dq, dk, dv

    def drop_bits(self, saved: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the bits of some heads at a time, int32 (heads, rows, words), and the first of these heads.

        They are slices of `saved`, shaped as `saved_bits_shape` says, or share one buffer if it has no heads.
        """
        from harness.attention.kernels.triton_drop_mask import drop_bits_kernel, window_starts_kernel

        spec, num_bh, constants = self.spec, self.q.shape[0] * self.q.shape[1], self.mask_constants
        window = min(spec.window, *spec.grid) if spec.unit == "block" and spec.grid else spec.window
        in_place = window == 1 and self.starts_rows == self.bits_rows
        rows = self.bits_rows if in_place else self.starts_rows + self.bits_rows
        max_heads = max(1, min(num_bh, MAX_BITS // (4 * rows * self.row_words)))
        buffer = saved if len(saved) else saved.new_empty(max_heads, self.bits_rows, self.row_words)
        separate_starts = None if in_place else saved.new_empty(max_heads, self.starts_rows, self.row_words)
        seed = int(spec.philox_seed)
        # Of each, the kernels get the low 32 bits as a signed integer.
        words = seed, seed >> 32, spec.stream, int(start_threshold(seed, spec.stream, spec.start_prob))
        seeds = [c_int32(word).value for word in words]
        block_m, block_bytes = (1, 2048) if self.starts_rows == 1 else STARTS_BLOCK
        blocks = -(-self.starts_rows // block_m) * -(-4 * self.row_words // block_bytes)
        for first_bh in range(0, num_bh, max_heads):
            heads = min(max_heads, num_bh - first_bh)
            bits = buffer[first_bh if len(saved) else 0 :][:heads]
            starts = bits if separate_starts is None else separate_starts
            window_starts_kernel[blocks, heads](
                starts.view(torch.uint8), self.starts_rows, 4 * self.row_words, *seeds, first_bh,
                BLOCK_M=block_m, BLOCK_BYTES=block_bytes,
            )  # fmt: skip
            if not (in_place and constants["INVERSE"]):
                drop_bits_kernel[-(-self.bits_rows // BITS_BLOCK[0]), heads](
                    starts, bits, self.mask, self.mask_row_max, self.starts_rows, self.bits_rows, self.row_words,
                    *self.mask_strides, self.q.shape[1], self.k.shape[2], *self.masked_logits, *(spec.grid or (1, 1)),
                    spec.num_prefix_tokens, first_bh, UNIT=UNITS.index(spec.unit), WINDOW=window, **constants,
                    BLOCK_M=BITS_BLOCK[0], BLOCK_WORDS=BITS_BLOCK[1],
                )  # fmt: skip
            yield first_bh, bits

    def _launch(self, kernel: Any, size: tuple[int, int], *args: Any, over_keys: bool = False) -> None:
        """Launch a kernel over blocks of queries, or of keys if `over_keys`, with the largest blocks that fit.

        `size` is the number of queries or keys, and that of heads.
        """
        from triton.runtime.errors import OutOfResources

        for large, small in self.block_sizes:
            block_m, block_n = (small, large) if over_keys else (large, small)
            try:
                kernel[-(-size[0] // large), size[1]](*args, BLOCK_M=block_m, BLOCK_N=block_n, **self.constants)
            except OutOfResources:
                if (large, small) == BLOCK_SIZES[-1]:
                    raise
            else:
                return
