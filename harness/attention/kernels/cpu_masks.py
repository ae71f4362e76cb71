"""Drop masks in one pass on a CPU: the Python side of ``cpu_masks.c``, and reusable buffers for its results."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.attention.kernels.c_library import load_library
from harness.attention.reference.drop_masks import UNITS, DropSpec, start_threshold
from harness.attention.reference.sdpa import MASKED_LOGIT_GAP

FILL_MASK, SOFTMAX, SOFTMAX_BACKWARD = range(3)


def struct_fields(**names: str) -> list[tuple[str, Any]]:
    """Return the `_fields_` of a structure from names per type, such as ``int64="batch heads"``."""
    return [(name, getattr(ctypes, f"c_{kind}")) for kind, group in names.items() for name in group.split()]


class _DropSpec(ctypes.Structure):
    """`DropSpec` of ``drop_bits.h``."""

    _fields_ = struct_fields(
        int64="seqlen_k", uint64="philox_seed", uint32="stream threshold",
        int32="unit window grid_h grid_w num_prefix_tokens",
    )  # fmt: skip


class KernelArgs(ctypes.Structure):
    """`KernelArgs` of ``cpu_masks.c``."""

    _fields_ = (
        ("spec", _DropSpec), ("mask_strides", ctypes.c_int64 * 4),
        *struct_fields(
            int64="num_heads seqlen_q off_bh num_bh off_m num_m", void_p="mask out dp row_max row_scale delta",
            float="softmax_scale masked_logit_gap masked_logit_max keep_value drop_value",
            int32="op mask_type keep_fully_dropped causal num_threads",
        ),
    )  # fmt: skip


class MaskFiller:
    """Fills parts of the drop mask of a spec, or of the weights after it.

    Args:
        spec: what is dropped.
        shape: (B, H, T, S) of the full mask.
        mask: boolean or additive, broadcastable to `shape`; merged into the result.
        keep_scale: factor of the kept weights for `inverse`, 1 / (1 − ratio). None for `renormalize`: dropped keys are
            −inf, and rows whose allowed keys would all be dropped keep all of them.
        causal: query i attends to keys 0 … i only, in addition to `mask`.
    """

    def __init__(
        self, spec: DropSpec, shape: tuple[int, int, int, int], mask: Tensor | None = None,
        keep_scale: float | None = None, *, causal: bool = False,
    ) -> None:  # fmt: skip
        _, num_heads, seqlen_q, seqlen_k = shape
        seed = int(spec.philox_seed)
        threshold = int(start_threshold(seed, spec.stream, spec.start_prob))
        self.args = KernelArgs(
            spec=_DropSpec(
                seqlen_k, seed % 2**64, spec.stream, threshold, UNITS.index(spec.unit), spec.window,
                *(spec.grid or (0, 0)), spec.num_prefix_tokens,
            ),
            num_heads=num_heads, seqlen_q=seqlen_q, masked_logit_gap=MASKED_LOGIT_GAP, keep_value=keep_scale or 0.0,
            drop_value=float("-inf") if keep_scale is None else 0.0, keep_fully_dropped=keep_scale is None,
            causal=causal, num_threads=torch.get_num_threads(),
        )  # fmt: skip
        if mask is None:
            return
        is_boolean = mask.dtype == torch.bool
        # A reference keeps the tensor alive: the arguments only hold its address.
        self.mask = (mask if is_boolean else mask.to(torch.float32)).expand(shape)
        self.args.mask_type, self.args.mask = 1 if is_boolean else 2, self.mask.data_ptr()
        self.args.mask_strides = (ctypes.c_int64 * 4)(*self.mask.stride())
        if not is_boolean:
            self.args.masked_logit_max = torch.finfo(mask.dtype).min / 2

    def fill(self, out: Tensor, off_bh: int, off_m: int) -> None:
        """Fill `out`, contiguous float32 (heads, rows, S), from head b · H + h = `off_bh` and row `off_m` on."""
        self._run(FILL_MASK, out, off_bh, off_m)

    def softmax_(self, logits: Tensor, row_stats: Tensor, off_bh: int, off_m: int, *, scale: float) -> None:
        """Overwrite logits, before scaling and masking, with weights: the softmax, times `keep_scale` or 0.

        `row_stats`, contiguous float32 (2, B, H, T), receives each row's maximum and scale, such that the softmax is
        exp(logit − maximum) · scale. The log-sum-exp, which combines them, would lose all digits for masks that add
        −10⁹. The other arguments are those of `fill`.
        """
        self._run(SOFTMAX, logits, off_bh, off_m, row_stats=row_stats, scale=scale)

    def softmax_backward_(
        self, logits: Tensor, dp: Tensor, row_stats: Tensor, delta: Tensor, off_bh: int, off_m: int, *, scale: float
    ) -> None:
        """Overwrite logits with weights, and the weights' gradients `dp` with those of the unscaled logits.

        `row_stats` is the result of `softmax_`; `delta`, contiguous float32 (B, H, T), is the sum of output times
        gradient per row.
        """
        self._run(SOFTMAX_BACKWARD, logits, off_bh, off_m, row_stats=row_stats, scale=scale, dp=dp, delta=delta)

    def _run(
        self, op: int, out: Tensor, off_bh: int, off_m: int, *, row_stats: Tensor | None = None, scale: float = 1.0,
        dp: Tensor | None = None, delta: Tensor | None = None,
    ) -> None:  # fmt: skip
        args = self.args
        args.op, args.out, args.off_bh, args.off_m, args.softmax_scale = op, out.data_ptr(), off_bh, off_m, scale
        args.num_bh, args.num_m = out.shape[0], out.shape[1]
        row_max, row_scale = (None, None) if row_stats is None else row_stats
        for name, tensor in (("row_max", row_max), ("row_scale", row_scale), ("dp", dp), ("delta", delta)):
            setattr(args, name, None if tensor is None else tensor.data_ptr())
        _kernel()(ctypes.byref(args), gomp_parallel())


class BufferPool:
    """Reusable memory for large float32 tensors.

    Fresh memory costs a page fault per 4 KiB, which takes as long as filling a mask, and the allocator returns large
    blocks to the system whenever they are free.
    """

    MIN_NUMEL = 2**18
    """Smaller buffers are left to the allocator, which caches them."""
    MAX_IDLE_NUMEL = 2**28
    """Elements of idle buffers; 1 GiB."""

    def __init__(self) -> None:
        self._idle: dict[int, list[NDArray[np.float32]]] = {}
        self._idle_numel = 0
        self._lock = Lock()

    def take(self, numel: int) -> Tensor:
        """Return an uninitialized 1-D tensor; its memory is reused once the tensor and its views are gone."""
        if numel < self.MIN_NUMEL:
            return torch.empty(numel)
        size = 1 << (numel - 1).bit_length()
        with self._lock:
            idle = self._idle.get(size)
            buffer = idle.pop() if idle else None
            self._idle_numel -= size if buffer is not None else 0
        # Memory beyond `numel` is never touched, so the system never allocates it.
        buffer = np.empty(size, np.float32) if buffer is None else buffer
        view = buffer[:numel]
        finalize(view, self._release, buffer).atexit = False
        return torch.from_numpy(view)

    def _release(self, buffer: NDArray[np.float32]) -> None:
        with self._lock:
            if self._idle_numel + len(buffer) <= self.MAX_IDLE_NUMEL:
                self._idle.setdefault(len(buffer), []).append(buffer)
                self._idle_numel += len(buffer)


BUFFERS = BufferPool()


@cache
def _kernel() -> ctypes._NamedFuncPointer:
    library = load_library("cpu_masks")
    assert library is not None, "`select_backend` checks that the library can be built"
    library.run_kernel.restype = None
    return library.run_kernel


@cache
def gomp_parallel() -> ctypes._NamedFuncPointer | None:
    """Return ``GOMP_parallel`` of the OpenMP runtime that torch has loaded (GNU, LLVM or Intel); None without one.

    The runtime is looked up among the loaded files: another library of the same name would start its own threads, in
    addition to torch's.
    """
    try:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return None
    for file in sorted(loaded):
        if re.match(r"lib(gomp|iomp|omp)", Path(file).name):
            try:
                return ctypes.CDLL(file).GOMP_parallel
            except (OSError, AttributeError):
                continue
    return None
