"""Masks of dropped keys in one pass on a CPU: what ``masks.c`` fills, from Python."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from threading import Lock
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.attention import UNSEEN
from harness.kernels import library
from harness.masks import UNITS, Draw, seed_threshold


class _Job(ctypes.Structure):
    """`Job` of ``masks.c``."""

    _fields_ = (
        ("heads", ctypes.c_int64), ("queries", ctypes.c_int64), ("keys", ctypes.c_int64),
        ("place", ctypes.c_int64), ("places", ctypes.c_int64), ("row", ctypes.c_int64), ("rows", ctypes.c_int64),
        ("key", ctypes.c_uint64), ("stream", ctypes.c_uint32), ("threshold", ctypes.c_uint32),
        ("unit", ctypes.c_int32), ("window", ctypes.c_int32), ("high", ctypes.c_int32), ("wide", ctypes.c_int32),
        ("prefix", ctypes.c_int32), ("mask_kind", ctypes.c_int32), ("mask", ctypes.c_void_p),
        ("mask_strides", ctypes.c_int64 * 4), ("out", ctypes.c_void_p), ("slopes", ctypes.c_void_p),
        ("origins", ctypes.c_void_p), ("shares", ctypes.c_void_p), ("delta", ctypes.c_void_p),
        ("scale", ctypes.c_float), ("what", ctypes.c_int32), ("unseen", ctypes.c_float), ("least", ctypes.c_float),
        ("kept", ctypes.c_float), ("gone", ctypes.c_float), ("spare", ctypes.c_int32), ("causal", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )  # fmt: skip


class MaskFiller:
    """Fills parts of a draw's mask.

    Args:
        draw: what is dropped.
        shape: (B, H, T, S) of the whole.
        mask: boolean or additive, broadcastable to `shape`, which the filled masks have in them.
        causal: whether query i attends to keys 0 … i only, beside `mask`.
        kept, gone: what a kept and a dropped key get where there is no `mask`.
        spare: whether a row that would lose every key that it may attend to loses none.
    """

    def __init__(
        self, draw: Draw, shape: tuple[int, int, int, int], mask: Tensor | None = None, *, causal: bool = False,
        kept: float = 0.0, gone: float = float("-inf"), spare: bool = True,
    ) -> None:  # fmt: skip
        _, heads, queries, keys = shape
        seed = int(draw.key)
        self.job = _Job(
            heads=heads, queries=queries, keys=keys, key=seed % 2**64, stream=draw.stream,
            threshold=int(seed_threshold(seed, draw.stream, draw.probability)), unit=UNITS.index(draw.unit),
            window=draw.window, prefix=draw.prefix, unseen=UNSEEN,
            kept=kept, gone=gone, spare=spare, causal=causal, threads=torch.get_num_threads(),
        )  # fmt: skip
        self.job.high, self.job.wide = draw.grid or (0, 0)
        if mask is None:
            return
        known = mask.dtype == torch.bool
        # Kept here: the job has only its address.
        self.mask = (mask if known else mask.to(torch.float32)).expand(shape)
        self.job.mask_kind, self.job.mask = 1 if known else 2, self.mask.data_ptr()
        self.job.mask_strides = (ctypes.c_int64 * 4)(*self.mask.stride())
        if not known:
            self.job.least = torch.finfo(mask.dtype).min / 2

    def fill(self, out: Tensor, place: int, row: int) -> None:
        """Fill `out`, contiguous float32 (places, rows, S), from this place (b · H + h) and row on."""
        self._run(out, place, row, what=0)

    def soften(self, logits: Tensor, sums: Tensor, place: int, row: int, *, scale: float) -> None:
        """Logits become weights: softmax first, then `kept` or `gone` times each.

        Args:
            logits: as `out` of `fill`, before they are scaled and masked.
            sums: float32 (2, B, H, T), contiguous; gets the origin of each row's exponentials, and their factor. In one
                logarithm together they would lose all digits where a mask adds −10⁹.
            place: the first, as in `fill`.
            row: the first, as in `fill`.
            scale: of the logits.
        """
        self._run(logits, place, row, what=1, sums=sums, scale=scale)

    def slope(
        self, logits: Tensor, slopes: Tensor, sums: Tensor, delta: Tensor, place: int, row: int, *, scale: float
    ) -> None:
        """Logits become weights as in `soften`, and gradients of these weights gradients of the unscaled logits.

        Args:
            logits: as in `soften`.
            slopes: the gradients, of the same shape.
            sums: what `soften` gave.
            delta: float32 (B, H, T), contiguous: each row's sum of output times gradient.
            place: the first, as in `fill`.
            row: the first, as in `fill`.
            scale: of the logits.
        """
        self._run(logits, place, row, what=2, sums=sums, scale=scale, slopes=slopes, delta=delta)

    def _run(
        self, out: Tensor, place: int, row: int, *, what: int, sums: Tensor | None = None, scale: float = 1.0,
        slopes: Tensor | None = None, delta: Tensor | None = None,
    ) -> None:  # fmt: skip
        job = self.job
        job.place, job.row, job.out, job.what, job.scale = place, row, out.data_ptr(), what, scale
        job.places, job.rows = out.shape[0], out.shape[1]
        origins, shares = (None, None) if sums is None else sums
        for name, tensor in (("origins", origins), ("shares", shares), ("slopes", slopes), ("delta", delta)):
            setattr(job, name, None if tensor is None else tensor.data_ptr())
        _kernel()(ctypes.byref(job), openmp())


class Rooms:
    """Memory that large tensors of float32 take turns in.

    Fresh memory costs a page fault for every 4 KiB of it, which takes as long as to fill a mask, and an allocator gives
    large pieces back to the system whenever they are free.
    """

    SMALL = 2**18
    """Cells; what is smaller the allocator keeps itself."""
    MOST_IDLE = 2**28
    """Cells that wait for their next turn; 1 GiB."""

    def __init__(self) -> None:
        self._idle: dict[int, list[NDArray[np.float32]]] = {}
        self._cells = 0
        self._lock = Lock()

    def take(self, cells: int) -> Tensor:
        """So many cells in a row, with anything in them; they come back by themselves."""
        if cells < self.SMALL:
            return torch.empty(cells)
        size = 1 << (cells - 1).bit_length()
        with self._lock:
            found = self._idle.get(size)
            room = found.pop() if found else None
            self._cells -= size if room is not None else 0
        # Of what is rounded up nothing is ever touched, so that it is no memory.
        whole = np.empty(size, np.float32) if room is None else room
        part = whole[:cells]
        finalize(part, self._back, whole).atexit = False
        return torch.from_numpy(part)

    def _back(self, whole: NDArray[np.float32]) -> None:
        with self._lock:
            if self._cells + len(whole) <= self.MOST_IDLE:
                self._idle.setdefault(len(whole), []).append(whole)
                self._cells += len(whole)


ROOMS = Rooms()


@cache
def _kernel() -> ctypes._NamedFuncPointer:
    found = library("masks")
    assert found is not None, "asked for before it was known to be there"
    found.drop_mask.restype = None
    return found.drop_mask


@cache
def openmp() -> ctypes._NamedFuncPointer | None:
    """What kernels share their work among threads with; None where there is nothing.

    It is ``GOMP_parallel`` of the OpenMP that torch has loaded, which is GNU's, LLVM's or Intel's. Found by where it
    lies: a library of that name from elsewhere would start threads beside torch's.
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
