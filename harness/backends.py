"""What computes attention with dropped keys: the same function of the same random bits in three ways.

- ``eager``: torch's own operations on any device; masks and, for `inverse`, weights are stored.
- ``cpu``: masks from a compiled kernel, which are kept for the backward pass while they are small, and else made piece
  by piece where SDPA finds them in the cache, once in either pass: nothing of the size T × S is stored then
  (`harness.kernels.pieces`). Needs a C compiler.
- ``triton``: one fused kernel on CUDA that decides as it goes (`harness.kernels.fused`).

The fastest that can do it is taken, unless one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, get_args

import torch

from harness.kernels import library, reason

if TYPE_CHECKING:
    from torch import Tensor

    from harness.masks import Draw
    from harness.regularizers.drop import Rescale

Backend = Literal["eager", "cpu", "triton"]
KINDS: tuple[Backend, ...] = get_args(Backend)
MOST_KEYS = 1 << 20
"""Of a row on a CPU: some rows of decisions lie on the stack."""

_asked: ContextVar[Backend | None] = ContextVar("backend", default=None)
_used: set[Backend] = set()


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Ask for a backend by name; any other name: the fastest. `used` tells of what is computed from here on."""
    token = _asked.set(next((one for one in KINDS if one == name), None))
    _used.clear()
    try:
        yield
    finally:
        _asked.reset(token)


def used() -> list[Backend]:
    """The backends that have computed anything."""
    return sorted(_used)


def chosen(q: Tensor, k: Tensor, v: Tensor, draw: Draw, rescale: Rescale, mask: Tensor | None) -> Backend:
    """The backend for a call: the one that is asked for, else the fastest; ``eager`` where that cannot do it."""
    wanted: Backend = _wanted(q.device.type)
    found: Backend = _noted(wanted if unfit(wanted, q, k, v, draw, rescale, mask) is None else "eager")
    return found


# For compilers constants: they are asked while a graph is made.


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _wanted(device: str) -> Backend:
    return _asked.get() or ("cpu" if device == "cpu" else "triton")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _noted(name: Backend) -> Backend:
    _used.add(name)
    return name


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _no_kernel() -> str | None:
    return reason("masks") if library("masks") is None else None


def unfit(
    name: Backend, q: Tensor, k: Tensor, v: Tensor, draw: Draw, rescale: Rescale, mask: Tensor | None
) -> str | None:
    """Why a backend cannot do a call; None where it can."""
    if name == "eager":
        return None
    if mask is not None and mask.requires_grad:
        return "gradients flow through its mask"
    if not q.numel() or not k.numel() or not v.numel():
        return "there is nothing to attend to"
    if name == "triton":
        from harness.kernels import launch

        return launch.unfit(q, v, draw)
    if q.device.type != "cpu":
        return f"its kernels run on CPUs, not on {q.device.type}"
    if k.shape[-2] > MOST_KEYS:
        return f"{k.shape[-2]} keys are more than {MOST_KEYS}"
    if rescale == "inverse":
        if draw.unit == "column":
            return "a column is dropped from the values"
        if not q.dtype == k.dtype == v.dtype == torch.float32:
            return "its softmax is that of float32"
    if q.shape[-1] != v.shape[-1] or not q.dtype == k.dtype == v.dtype:
        return "torch's kernel wants heads of one size and dtype"
    if not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return "torch's kernel wants heads that lie together"
    why: str | None = _no_kernel()
    return why
