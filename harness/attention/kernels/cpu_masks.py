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

from harness.attention.kernels.c_library import load_function
from harness.attention.reference.drop_masks import UNITS, DropSpec, start_threshold
from harness.attention.reference.sdpa import MASKED_LOGIT_GAP


def struct_fields(**names: str) -> list[tuple[str, Any]]:
    """Return the `_fields_` of a structure from names per type, such as ``int64="batch heads"``."""
    return [(name, getattr(ctypes, f"c_{kind}")) for kind, group in names.items() for name in group.split()]


class DropBits(ctypes.Structure):
    """`DropSpec` of ``drop_bits.h``."""

    _fields_ = struct_fields(
        int64="seqlen_k", uint64="philox_seed", uint32="stream threshold",
        int32="unit window grid_h grid_w num_prefix_tokens",
    )  # fmt: skip


class MaskView(ctypes.Structure):
    """`Mask` of ``mask.h``."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("strides", ctypes.c_int64 * 4),
        *struct_fields(int32="type", float="masked_logit_gap masked_logit_max"),
    )  # fmt: skip


class KernelArgs(ctypes.Structure):
    """`KernelArgs` of ``cpu_masks.c``."""

    _fields_ = (
        ("spec", DropBits), ("mask", MaskView),
        *struct_fields(
            int64="num_heads off_bh num_bh off_m num_m", void_p="out", int32="causal num_threads"
        ),
    )  # fmt: skip


def drop_bits(spec: DropSpec, seqlen_k: int) -> DropBits:
    """Return the spec for C kernels."""
    seed = int(spec.philox_seed)
    threshold = int(start_threshold(seed, spec.stream, spec.start_prob))
    return DropBits(
        seqlen_k, seed % 2**64, spec.stream, threshold, UNITS.index(spec.unit), spec.window, *(spec.grid or (0, 0)),
        spec.num_prefix_tokens,
    )  # fmt: skip


def mask_view(mask: Tensor | None, shape: tuple[int, int, int, int]) -> tuple[MaskView, Tensor | None]:
    """Return a mask, broadcastable to `shape`, for C kernels, and the tensor whose memory it points to."""
    if mask is None:
        return MaskView(), None
    is_boolean = mask.dtype == torch.bool
    masked_logit_max = 0.0 if is_boolean else torch.finfo(mask.dtype).min / 2
    mask = (mask if is_boolean else mask.to(torch.float32)).expand(shape)
    strides = (ctypes.c_int64 * 4)(*mask.stride())
    return MaskView(mask.data_ptr(), strides, 1 if is_boolean else 2, MASKED_LOGIT_GAP, masked_logit_max), mask


class MaskFiller:
    """Fills parts of the drop mask of a spec: 0 or, for dropped keys, −inf.

    Rows whose allowed keys would all be dropped keep all of them.

    Args:
        spec: what is dropped.
        shape: (B, H, T, S) of the full mask.
        mask: boolean or additive, broadcastable to `shape`; merged into the result.
        causal: query i attends to keys 0 … i only, in addition to `mask`.
    """

    def __init__(
        self, spec: DropSpec, shape: tuple[int, int, int, int], mask: Tensor | None = None, *, causal: bool = False
    ) -> None:
        view, self._mask = mask_view(mask, shape)
        self.args = KernelArgs(
            spec=drop_bits(spec, shape[3]), mask=view, num_heads=shape[1], causal=causal,
            num_threads=torch.get_num_threads(),
        )  # fmt: skip

    def fill(self, out: Tensor, off_bh: int, off_m: int) -> None:
        """Fill `out`, contiguous float32 (heads, rows, S), from head b · H + h = `off_bh` and row `off_m` on."""
        args = self.args
        args.out, args.off_bh, args.off_m, args.num_bh, args.num_m = out.data_ptr(), off_bh, off_m, *out.shape[:2]
        load_function("cpu_masks", "fill_mask")(ctypes.byref(args), gomp_parallel())


def lse_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype of masks and softmax statistics: at least float32."""
    return torch.promote_types(q.dtype, torch.float32)


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
