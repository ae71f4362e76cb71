"""Launch of the Triton kernels: shapes, strides, block sizes, and memory for the stored decisions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, nullcontext
from ctypes import c_int32
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from dropbench.harness.attention.kernels.triton_runtime import gpu_reason, lanes, launch, urgent, warn_if_captured
from dropbench.harness.attention.reference.drop_masks import UNITS, DropSpec, start_threshold
from dropbench.harness.attention.reference.sdpa import MASKED_LOGIT_GAP

MAX_WINDOW = 33
"""Window starts are searched in a word of 32 keys and in the previous one."""
MAX_HEAD_DIM = 256
"""Limited by the shared memory of a multiprocessor."""
BLOCKS = (128, 64, 8, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 2)
"""Queries or keys of a program, keys or queries of a step of its loop, warps, and stages: in half precision the first
for head dimensions above 64 and the second up to 64, as was fastest on an H100; in float32 the third, and the fourth in
the pass over keys; above 128 the fourth. If they do not fit in a multiprocessor's shared memory, the next."""
ROW_PADDING = 128
"""Stored decisions are padded to multiples of it, so that no block reads past them."""
MAX_BITS = 2**25
"""Bytes of stored decisions at a time, 1 bit per query and key: at most these or, if they are more, as many as those of
the queries, or the decisions of a head per lane. So the memory of many heads grows linearly with their length."""
MAX_GRID = 2**16 - 1
"""Heads per launch, CUDA's limit."""
LANES = 2
"""Streams that take turns where not all bits are stored at a time: while one uses its bits, the next are drawn for the
other, and multiprocessors that one leaves idle, as it has no blocks left, work for the other."""
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


def saved_bits_shape(
    q: Tensor, k: Tensor, mask: Tensor | None, unit: str, *, inverse: bool, causal: bool
) -> tuple[int, int, int]:
    """Return the shape of the bits that the forward pass saves for the backward pass: (heads, 64-bit words, rows).

    There is one row for all queries if they may attend to the same keys. There are 0 heads if not all bits are stored
    at a time, see `MAX_BITS`; the backward pass makes them again.
    """
    num_heads, words, rows = q.shape[0] * q.shape[1], _padded(k.shape[2]) // 64, _padded(q.shape[2])
    rows_share_mask = inverse or not (causal or (mask is not None and mask.dim() > 1 and mask.shape[-2] > 1))
    if unit == "column" and rows_share_mask:
        rows = 1
    return num_heads if 8 * num_heads * words * rows <= _max_bits(q) else 0, words, rows


def _max_bits(q: Tensor) -> int:
    return max(MAX_BITS, q.numel() * q.element_size())


def _near(tensor: Tensor) -> Tensor:
    """Return a tensor (B, H, T, d) whose vectors are contiguous and at offsets within a head that fit in 32 bits."""
    is_near = tensor.stride(-1) == 1 and (tensor.shape[2] - 1) * tensor.stride(2) + tensor.shape[3] <= 2**31
    return tensor if is_near else tensor.contiguous()


def _padded(size: int) -> int:
    return -(-size // ROW_PADDING) * ROW_PADDING


class TritonAttention:
    """One call, forward or backward with the same spec; arguments as in `cpu_fused.FusedAttention`."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float,
    ) -> None:  # fmt: skip
        q, k, v = self.q, self.k, self.v = _near(q), _near(k), _near(v)
        self.spec, self.strides = spec, (*q.stride(), *k.stride(), *v.stride())
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
        self.saved_shape = saved_bits_shape(q, k, mask, spec.unit, inverse=keep_scale is not None, causal=causal)
        _, self.row_words, self.stored_rows = self.saved_shape
        self.scalars = *shape[1:], q.shape[3], v.shape[3], float(scale), keep_scale or 1.0
        block_d, block_dv = (max(16, 1 << (size - 1).bit_length()) for size in (q.shape[3], v.shape[3]))
        exact = q.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32"
        self.mask_constants: dict[str, Any] = {
            "INVERSE": keep_scale is not None, "MASK_TYPE": mask_type, "IS_CAUSAL": causal
        }  # fmt: skip
        self.constants: dict[str, Any] = {
            **self.mask_constants, "BLOCK_D": block_d, "BLOCK_DV": block_dv, "PRECISION": "ieee" if exact else "tf32",
        }  # fmt: skip
        self.even_dims = (q.shape[3], v.shape[3]) == (block_d, block_dv)
        largest = max(block_d, block_dv)
        self.first_block = 3 if largest > 128 else 2 if q.dtype == torch.float32 else 0 if largest > 64 else 1

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), the log2-sum-exp2 of each row (B, H, T), and the saved bits."""
        from dropbench.harness.attention.kernels import triton_kernels

        warn_if_captured(self.q.device)
        batch, heads, seqlen_q, _ = self.q.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = self.q.new_empty(batch, seqlen_q, heads, self.v.shape[-1]).transpose(1, 2)
        near_out = _near(out)
        lse = self.q.new_empty(batch, heads, seqlen_q, dtype=torch.float32)
        saved = self.q.new_empty(self.saved_shape, dtype=torch.int64)
        with torch.cuda.device_of(self.q), closing(self.drop_bits(saved)) as parts:
            for first_bh, bits in parts:
                tensors = self.q, self.k, self.v, near_out, lse, self.mask, bits
                self._launch(triton_kernels.fwd_kernel, seqlen_q, tensors, near_out.stride(), bits, first_bh)
        return out if near_out is out else out.copy_(near_out), lse, saved

    def backward(self, d_out: Tensor, out: Tensor, lse: Tensor, saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        from dropbench.harness.attention.kernels import triton_kernels

        q, k, v, mask = self.q, self.k, self.v, self.mask
        out, d_out = _near(out), _near(d_out)
        dq, dk, dv = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
        stats = torch.empty_like(lse, dtype=torch.int64)
        with torch.cuda.device_of(q), closing(self.drop_bits(saved, made=len(saved) > 0)) as parts:
            for first_bh, bits in parts:
                for_q = q, k, v, d_out, out, lse, stats, mask, bits, dq
                strides = *d_out.stride(), *out.stride()
                self._launch(triton_kernels.bwd_dq_kernel, q.shape[2], for_q, strides, bits, first_bh)
                transposed = self._transposed(bits)
                for_k = q, k, v, d_out, stats, mask, transposed, dk, dv
                self._launch(
                    triton_kernels.bwd_dkdv_kernel, k.shape[2], for_k, d_out.stride(), transposed, first_bh,
                    over_keys=True,
                )  # fmt: skip
        return dq, dk, dv

    def drop_bits(self, saved: Tensor, *, made: bool = False) -> Generator[tuple[int, Tensor]]:
        """Yield the bits of some heads at a time, int64 (heads, words, rows), and the first of these heads.

        They are slices of `saved`, shaped as `saved_bits_shape` says, or of buffers for some heads if it has none; then
        the consumer's kernels, too, run in a lane in turn. If they are `made`, `saved` has them all.
        """
        num_bh = self.q.shape[0] * self.q.shape[1]
        if made:
            yield from ((first_bh, saved[first_bh:][:MAX_GRID]) for first_bh in range(0, num_bh, MAX_GRID))
            return
        from dropbench.harness.attention.kernels.triton_drop_mask import drop_bits_kernel

        spec, rows = self.spec, self.stored_rows
        window = min(spec.window, *spec.grid) if spec.unit == "block" and spec.grid else spec.window
        in_grid = spec.unit == "block" and spec.grid is not None and window > 1
        bytes_per_head = 8 * self.row_words * rows * (1 + in_grid)
        num_lanes = 1 if len(saved) else min(LANES, num_bh)
        max_heads = max(1, min(num_bh, MAX_GRID, _max_bits(self.q) // (num_lanes * bytes_per_head)))
        buffers = saved[None] if len(saved) else saved.new_empty(num_lanes, max_heads, self.row_words, rows)
        window_rows = buffers.new_empty(num_lanes, max_heads, *buffers.shape[2:]) if in_grid else buffers
        seed = int(spec.philox_seed)
        # Of each, the kernel gets the low 32 bits as a signed integer.
        words = seed, seed >> 32, spec.stream, int(start_threshold(seed, spec.stream, spec.start_prob))
        draws = [c_int32(word).value for word in words]
        starts_rows = 1 if spec.unit == "column" else self.q.shape[2]
        sizes = (
            starts_rows, min(rows, self.q.shape[2]), self.row_words, rows, *self.mask_strides, self.q.shape[1],
            self.k.shape[2], *self.masked_logits, spec.grid[1] if spec.grid else 1,
        )  # fmt: skip
        constants = {"UNIT": UNITS.index(spec.unit), "WINDOW": window, **self.mask_constants, "BLOCK_M": ROW_PADDING}
        valid = buffers  # not read
        if spec.unit == "block" and spec.grid:
            valid = _valid_starts(*spec.grid, window, spec.num_prefix_tokens, 2 * self.row_words, self.q.device)
        with lanes(self.q.device, num_lanes) as streams:
            for turn, first_bh in enumerate(range(0, num_bh, max_heads)):
                heads, lane = min(max_heads, num_bh - first_bh), turn % num_lanes
                bits = buffers[lane, first_bh if len(saved) else 0 :][:heads]
                tensors = valid, window_rows[lane].view(torch.int32), bits, self.mask, self.mask_row_max
                grid = -(-rows // ROW_PADDING), heads, 1
                with streams[lane]:
                    with urgent(self.q.device) if num_lanes > 1 else nullcontext():
                        launch(drop_bits_kernel, grid, tensors, sizes, (*draws, first_bh), constants)
                    yield first_bh, bits

    def _transposed(self, bits: Tensor) -> Tensor:
        """Return bits as int64 (heads, words of 64 queries, keys); one word if all queries share a row."""
        from dropbench.harness.attention.kernels.triton_drop_mask import transposed_bits_kernel

        heads, row_words, rows = bits.shape
        transposed = bits.new_empty(heads, -(-rows // 64), 64 * row_words)
        block_words = min(TRANSPOSED_WORDS, 1 << (row_words - 1).bit_length())
        grid, sizes = (transposed.shape[1], -(-row_words // block_words), heads), (rows, int(rows > 1), row_words)
        launch(transposed_bits_kernel, grid, (bits, transposed), sizes, (), {"BLOCK_WORDS": block_words})
        return transposed

    def _launch(
        self, kernel: Any, size: int, tensors: tuple[Tensor, ...], strides: tuple[int, ...], bits: Tensor,
        first_bh: int, *, over_keys: bool = False,
    ) -> None:  # fmt: skip
        """Launch a kernel over `size` queries, or keys if `over_keys`, of all heads of `bits`.

        It uses the largest blocks that fit. `strides` are those of tensors other than q, k, v, the mask and the bits.
        """
        from triton.runtime.errors import OutOfResources

        heads, words, rows = bits.shape
        row_strides = (rows, 1) if self.stored_rows > 1 else (0 if over_keys else 1, int(over_keys))
        sizes = (*self.strides, *strides, *self.mask_strides[:4], words * rows, *row_strides, *self.scalars)
        first = max(self.first_block, 3) if over_keys and self.q.dtype == torch.float32 else self.first_block
        for own, step, warps, stages in BLOCKS[first:]:
            block_m, block_n = (step, own) if over_keys else (own, step)
            even = not self.q.shape[2] % block_m and not self.k.shape[2] % block_n and self.even_dims
            constants = {**self.constants, "EVEN": even, "BLOCK_M": block_m, "BLOCK_N": block_n}
            grid = -(-size // own), heads, 1
            try:
                launch(kernel, grid, tensors, sizes, (first_bh,), constants, num_warps=warps, num_stages=stages)
            except OutOfResources:
                if (own, step, warps, stages) == BLOCKS[-1]:
                    raise
            else:
                return


@cache  # without a limit, as captured CUDA graphs go on reading them
def _valid_starts(
    grid_h: int, grid_w: int, window: int, num_prefix_tokens: int, num_words: int, device: torch.device
) -> Tensor:
    """Return the keys whose windows fit in the grid as 32-bit words, int32 (num_words,)."""
    cell = torch.arange(32 * num_words) - num_prefix_tokens
    valid = (cell >= 0) & (cell // grid_w <= grid_h - window) & (cell % grid_w <= grid_w - window)
    return (valid.view(-1, 32).long() << torch.arange(32)).sum(dim=1).to(torch.int32).to(device)
