"""Launch of the Triton kernels: what they support, block sizes, and memory for the stored decisions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from ctypes import c_int32
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from dropbench.harness.attention.kernels.triton_layout import ROW_PADDING, layout_of, padded
from dropbench.harness.attention.kernels.triton_runtime import Launch, gpu_reason, lanes, urgent, warn_if_captured
from dropbench.harness.attention.reference.drop_masks import DropSpec, start_threshold

MAX_WINDOW = 33
"""Window starts are searched in a word of 32 keys and in the previous one."""
MAX_HEAD_DIM = 256
"""Limited by the shared memory of a multiprocessor."""
BLOCKS = (128, 64, 8, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 2)
"""Queries or keys of a program, keys or queries of a step of its loop, warps, and stages: in half precision the first
for head dimensions above 64 and the second up to 64, as was fastest on an H100; in float32 the third, and the fourth in
the pass over keys; above 128 the fourth. If they do not fit in a multiprocessor's shared memory, the next."""
TRANSPOSED_WORDS = 16
"""Squares of 64 keys by 64 queries that a program transposes, at most."""
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
    if (head_dim := max(q.shape[-1], v.shape[-1])) > MAX_HEAD_DIM:
        return f"a head dimension of {head_dim} is larger than {MAX_HEAD_DIM}"
    if q.device.type != "cuda":
        return None
    reason: str | None = gpu_reason(q.device.index, wide_float32=q.dtype == torch.float32 and head_dim > 128)
    return reason


def _near(tensor: Tensor) -> Tensor:
    """Return a tensor (B, H, T, d) whose vectors are contiguous and at offsets within a head that fit in 32 bits."""
    (*_, rows, size), (*_, stride, step) = tensor.shape, tensor.stride()
    is_near = step == 1 and (rows - 1) * stride + size <= 2**31
    return tensor if is_near else tensor.contiguous()


class TritonAttention:
    """One call, forward or backward with the same spec; arguments as in `cpu_fused.FusedAttention`."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float,
    ) -> None:  # fmt: skip
        q, k, v = self.q, self.k, self.v = _near(q), _near(k), _near(v)
        self.spec, self.layout = spec, layout_of(q, k, v, mask, spec, keep_scale, causal, scale)
        self.mask = self.mask_row_max = q
        if mask is not None:
            self.mask = mask.expand(*q.shape[:3], k.shape[2])
            if mask.dtype == torch.bool:
                self.mask = self.mask.view(torch.uint8)
            else:
                self.mask_row_max = mask.amax(dim=-1).expand(q.shape[:3])

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), the log2-sum-exp2 of each row (B, H, T), and the saved bits."""
        from dropbench.harness.attention.kernels import triton_kernels

        warn_if_captured(self.q.device)
        batch, heads, seqlen_q, _ = self.q.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = self.q.new_empty(batch, seqlen_q, heads, self.v.shape[-1]).transpose(1, 2)
        near_out = _near(out)
        lse = self.q.new_empty(batch, heads, seqlen_q, dtype=torch.float32)
        saved = self.q.new_empty(self.layout.saved_shape, dtype=torch.int64)
        with torch.cuda.device_of(self.q), closing(self.drop_bits(saved)) as parts:
            for first_bh, bits in parts:
                tensors = self.q, self.k, self.v, near_out, lse, self.mask, bits
                self._launch(triton_kernels.fwd_kernel, tensors, near_out.stride(), bits, first_bh)
        return out if near_out is out else out.copy_(near_out), lse, saved

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        from dropbench.harness.attention.kernels import triton_kernels

        q, k, v, mask = self.q, self.k, self.v, self.mask
        out, d_out = _near(out), _near(d_out)
        dq, dk, dv = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
        stats = lse.new_empty(*lse.shape[:2], padded(lse.shape[2]), dtype=torch.int64)
        are_saved = saved.shape[0] > 0
        with torch.cuda.device_of(q), closing(self.drop_bits(saved, made=are_saved)) as parts:
            for first_bh, bits in parts:
                for_q = q, k, v, d_out, out, lse, stats, mask, bits, dq
                strides = *d_out.stride(), *out.stride()
                self._launch(triton_kernels.bwd_dq_kernel, for_q, strides, bits, first_bh)
                transposed = self._transposed(bits, in_place=not are_saved)
                for_k = q, k, v, d_out, stats, mask, transposed, dk, dv
                self._launch(
                    triton_kernels.bwd_dkdv_kernel, for_k, d_out.stride(), transposed, first_bh, over_keys=True
                )
        return dq, dk, dv

    def drop_bits(self, saved: Tensor, *, made: bool = False) -> Generator[tuple[int, Tensor]]:
        """Yield the bits of some heads at a time, int64 (heads, words, rows), and the first of these heads.

        They are slices of `saved`, shaped as `saved_bits_shape` says, or of buffers for some heads if it has none; then
        the consumer's kernels, too, run in a lane in turn. If they are `made`, `saved` has them all.
        """
        layout, keeps = self.layout, saved.shape[0] > 0
        firsts = range(0, layout.num_bh, layout.max_heads)
        if keeps and (made or len(firsts) == 1):
            for first_bh in firsts:
                bits = saved if len(firsts) == 1 else saved[first_bh:][: layout.max_heads]
                if not made:
                    self._draw(first_bh, bits, self._rings(1)[0])
                yield first_bh, bits
            return
        buffers = saved[None] if keeps else saved.new_empty(layout.lanes, layout.max_heads, *saved.shape[1:])
        rings = self._rings(layout.lanes)
        with lanes(self.q.device, layout.lanes) as streams:
            for turn, first_bh in enumerate(firsts):
                heads, lane = min(layout.max_heads, layout.num_bh - first_bh), turn % layout.lanes
                bits = buffers[lane, first_bh if keeps else 0 :][:heads]
                with streams[lane]:
                    with urgent(self.q.device) if layout.lanes > 1 else nullcontext():
                        self._draw(first_bh, bits, rings[lane])
                    yield first_bh, bits

    def _rings(self, count: int) -> Sequence[Tensor]:
        """Return memory for each lane: the last words of windows' first rows in a grid, if any."""
        layout = self.layout
        if not layout.ring_words:
            return (self.q,) * count  # not read
        shape = count, layout.max_heads, layout.ring_words, layout.saved_shape[2]
        return self.q.new_empty(shape, dtype=torch.int32).unbind()

    def _draw(self, first_bh: int, bits: Tensor, ring: Tensor) -> None:
        """Make the bits of some heads."""
        from dropbench.harness.attention.kernels.triton_drop_mask import drop_bits_kernel

        layout, heads = self.layout, bits.shape[0]
        seed, stream = int(self.spec.philox_seed), self.spec.stream
        threshold = int(start_threshold(seed, stream, self.spec.start_prob))
        key = id(drop_bits_kernel), heads
        if (run := layout.launches.get(key)) is None:
            grid = -(-layout.saved_shape[2] // ROW_PADDING), heads, 1
            run = layout.launches[key] = Launch(drop_bits_kernel, grid, layout.bits_sizes, layout.bits_constants)
        # Of each number, the kernel gets the low 32 bits as a signed integer.
        draws = [c_int32(word).value for word in (seed, seed >> 32, stream, threshold)]
        valid = bits if layout.valid is None else layout.valid
        run((valid, ring, bits, self.mask, self.mask_row_max), (*draws, first_bh))

    def _transposed(self, bits: Tensor, *, in_place: bool) -> Tensor:
        """Return bits as words of 64 queries, int64 (heads, words, rows), at least 64 rows; see its kernel."""
        from dropbench.harness.attention.kernels.triton_drop_mask import transposed_bits_kernel

        heads, row_words, rows = bits.shape
        transposed = bits if in_place and rows > 1 else bits.new_empty(heads, row_words, max(64, rows))
        key = id(transposed_bits_kernel), heads
        if (run := self.layout.launches.get(key)) is None:
            block_words = min(TRANSPOSED_WORDS, 1 << (row_words - 1).bit_length())
            grid = -(-rows // 64), -(-row_words // block_words), heads
            sizes = rows, int(rows > 1), transposed.shape[2], row_words
            run = Launch(transposed_bits_kernel, grid, sizes, {"BLOCK_WORDS": block_words})
            self.layout.launches[key] = run
        run((bits, transposed), ())
        return transposed

    def _launch(
        self, kernel: Any, tensors: tuple[Tensor, ...], strides: tuple[int, ...], bits: Tensor, first_bh: int, *,
        over_keys: bool = False,
    ) -> None:  # fmt: skip
        """Launch a kernel over the queries, or keys if `over_keys`, of all heads of `bits`.

        It uses the largest blocks that fit. `strides` are those of tensors other than q, k, v, the mask and the bits.
        """
        key = id(kernel), bits.shape[0], strides
        if (run := self.layout.launches.get(key)) is not None:
            run(tensors, (first_bh,))
            return
        from triton.runtime.errors import OutOfResources

        layout, (heads, words, rows) = self.layout, bits.shape
        word_stride = (64 if over_keys else rows) if layout.saved_shape[2] > 1 else int(not over_keys)
        row_strides = word_stride, rows if over_keys else int(layout.saved_shape[2] > 1)
        sizes = (*layout.strides, *strides, *layout.mask_strides, words * rows, *row_strides, *layout.scalars)
        first = max(layout.first_block, 3) if over_keys and layout.is_float32 else layout.first_block
        for own, step, warps, stages in BLOCKS[first:]:
            block_m, block_n = (step, own) if over_keys else (own, step)
            even = not layout.size[0] % block_m and not layout.size[1] % block_n and layout.even_dims
            constants = {**layout.constants, "EVEN": even, "BLOCK_M": block_m, "BLOCK_N": block_n}
            grid = -(-layout.size[over_keys] // own), heads, 1
            run = Launch(kernel, grid, sizes, constants, num_warps=warps, num_stages=stages)
            try:
                run(tensors, (first_bh,))
            except OutOfResources:
                if (own, step, warps, stages) == BLOCKS[-1]:
                    raise
            else:
                layout.launches[key] = run
                return
