"""What launches the kernels of ``fused.py``: shapes, strides and sizes of blocks."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from harness.attention import UNSEEN
from harness.masks import UNITS, Draw, seed_threshold

MOST_WINDOW = 33
"""Seeds are looked for in a word of 32 keys and in the one before."""
MOST_SIZE = 256
"""Of a head: what fits in the shared memory of a multiprocessor."""
BLOCKS = (128, 64), (64, 32), (32, 32)
"""Queries and keys of a block, the first that fits in a multiprocessor's shared memory."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@cache
def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, as tests on a CPU have them."""
    if find_spec("triton") is None:
        return False
    from triton import knobs

    return bool(knobs.runtime.interpret)


def unfit(q: Tensor, v: Tensor, draw: Draw) -> str | None:
    """Why these kernels cannot do this; None where they can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if q.device.type != "cuda" and not (q.device.type == "cpu" and interpreted()):
        return f"its kernels run on CUDA, not on {q.device.type}"
    if draw.unit == "cross":
        return "unit 'cross' takes keys from anywhere in the grid"
    if draw.window > MOST_WINDOW:
        return f"a window of {draw.window} keys is longer than {MOST_WINDOW}"
    if q.dtype not in DTYPES:
        return f"its kernels know {', '.join(str(one).removeprefix('torch.') for one in DTYPES)}, not {q.dtype}"
    if max(q.shape[-1], v.shape[-1]) > MOST_SIZE:
        return f"a head of size {max(q.shape[-1], v.shape[-1])} is larger than {MOST_SIZE}"
    return None


class Launch:
    """One call's work: forward, or backward of the same draw. Arguments as those of `harness.kernels.pieces.Pieces`."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, draw: Draw, inverse: float | None, *, causal: bool,
        scale: float,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = q, k, v
        shape = *q.shape[:3], k.shape[2]
        kind, self.mask, self.best, least = 0, q, q, 0.0
        strides: tuple[int, ...] = (0,) * 7
        if mask is not None:
            kind, self.mask = 1, mask.expand(shape)
            strides = *self.mask.stride(), 0, 0, 0
            if mask.dtype == torch.bool:
                self.mask = self.mask.view(torch.uint8)
            else:
                kind, least = 2, torch.finfo(mask.dtype).min / 2
                self.best = mask.amax(dim=-1).expand(shape[:3])
                strides = *self.mask.stride(), *self.best.stride()
        key = int(draw.key)
        words = key, key >> 32, draw.stream, int(seed_threshold(key, draw.stream, draw.probability))
        self.rest = (
            *strides, q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], scale, inverse or 1.0, UNSEEN, least,
            *map(_signed, words), *(draw.grid or (1, 1)), draw.prefix,
        )  # fmt: skip
        size, width = (max(16, 1 << (one - 1).bit_length()) for one in (q.shape[3], v.shape[3]))
        exact = q.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
        self.options: dict[str, Any] = {
            "UNIT": UNITS.index(draw.unit),
            "WINDOW": min(draw.window, *draw.grid) if draw.unit == "block" and draw.grid else draw.window,
            "INVERSE": inverse is not None, "KIND": kind, "CAUSAL": causal, "D": size, "E": width,
            "PRECISION": "ieee" if exact else "tf32",
        }  # fmt: skip
        self.fitting = 1 if max(size, width) > 128 or q.dtype == torch.float32 else 0

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """The output (B, H, T, e), log2 of the sums of exponentials and which rows are spared (B, H, T)."""
        from harness.kernels import fused

        batch, heads, queries, _ = self.q.shape
        # As SDPA has it: what follows joins the heads.
        out = self.q.new_empty(batch, queries, heads, self.v.shape[-1]).transpose(1, 2)
        sums = self.q.new_empty(batch, heads, queries, dtype=torch.float32)
        spared = self.q.new_zeros(batch, heads, queries, dtype=torch.int8)
        given = self.q, self.k, self.v, out, sums, spared, self.mask, self.best
        self._run(fused.forward, queries, *given, *self._strides(out), *self.rest)
        return out, sums, spared

    def backward(self, d_out: Tensor, out: Tensor, sums: Tensor, spared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v."""
        from harness.kernels import fused

        d_q, d_k, d_v = (
            torch.empty_like(one, memory_format=torch.contiguous_format) for one in (self.q, self.k, self.v)
        )
        delta = (d_out.float() * out.float()).sum(-1)
        given = self.q, self.k, self.v, d_out, sums, delta, spared, self.mask, self.best
        rest = *self._strides(d_out), *self.rest
        self._run(fused.backward_queries, self.q.shape[2], *given, d_q, *rest)
        self._run(fused.backward_keys, self.k.shape[2], *given, d_k, d_v, *rest, keys=True)
        return d_q, d_k, d_v

    def _run(self, kernel: Any, rows: int, *given: Any, keys: bool = False) -> None:
        """A kernel over blocks of so many rows, which are queries or keys."""
        from triton.runtime.errors import OutOfResources

        places = self.q.shape[0] * self.q.shape[1]
        for large, small in BLOCKS[self.fitting :]:
            m, n = (small, large) if keys else (large, small)
            try:
                kernel[-(-rows // large), places](*given, M=m, N=n, **self.options)
            except OutOfResources:
                if (large, small) == BLOCKS[-1]:
                    raise
            else:
                return

    def _strides(self, out: Tensor) -> tuple[int, ...]:
        return *self.q.stride(), *self.k.stride(), *self.v.stride(), *out.stride()


def _signed(word: int) -> int:
    """The low 32 bits as the signed number of the same bits."""
    word &= 2**32 - 1
    return word - 2**32 if word >= 2**31 else word
