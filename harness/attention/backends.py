"""Backends that compute attention with dropped keys: three implementations of one function of the same random bits.

- ``eager``: torch operations on any device. Masks are stored on GPUs, and weights for `inverse` and `detached`.
- ``cpu``: a compiled C kernel, which needs a C compiler. It draws as it goes, so nothing of size T × S is stored
  (`dropbench.harness.attention.kernels.cpu_fused`). Many dropped columns are removed before
  (`dropbench.harness.attention.gathered`).
- ``triton``: fused kernels on CUDA that read decisions stored as bits
(`dropbench.harness.attention.kernels.triton_kernels`).

The fastest backend that supports a call is used, unless one is requested.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, get_args

import torch

from dropbench.harness.attention.kernels import cpu_fused
from dropbench.harness.attention.kernels.c_library import build_error
from dropbench.harness.attention.reference.sdpa import is_transformed
from dropbench.harness.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from dropbench.harness.attention.reference.drop_masks import DropSpec
    from dropbench.harness.attention.reference.units import Rescale

Backend = Literal["eager", "cpu", "triton"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
MAX_CPU_KEYS = 1 << 20
"""The CPU kernel holds some rows of decisions on the stack."""

_requested: ContextVar[Backend | None] = ContextVar("backend", default=None)
_used: set[Backend] = set()


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Request a backend by name, or the fastest with any other name; `used_backends` is reset on entry."""
    token = _requested.set(next((known for known in BACKENDS if known == name), None))
    _used.clear()
    try:
        yield
    finally:
        _requested.reset(token)


def used_backends() -> list[Backend]:
    """Return the backends that computed something since `backend` was entered."""
    return sorted(_used)


def check_backend(name: str, *, cuda: bool) -> None:
    """Raise InputError if this machine lacks the requested backend for its GPU, or without `cuda` for its CPU."""
    if name in BACKENDS and (reason := _unavailable_reason(name, "cuda" if cuda else "cpu")) is not None:
        raise InputError(f"backend {name}: {reason}: use `--backend auto`")


def select_backend(
    q: Tensor, k: Tensor, v: Tensor, spec: DropSpec, rescale: Rescale, mask: Tensor | None, top: int = 0
) -> Backend:
    """Return the backend for a call: the requested or else the fastest; ``eager`` if that does not support it."""
    preferred: Backend = _preferred(q.device.type)
    supported = unsupported_reason(preferred, q, k, v, spec, rescale, mask, top) is None
    selected: Backend = _record(preferred if supported else "eager")
    return selected


# torch.compile evaluates these while it traces a graph, and treats their results as constants.


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _preferred(device: str) -> Backend:
    return _requested.get() or ("cpu" if device == "cpu" else "triton")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _record(name: Backend) -> Backend:
    _used.add(name)
    return name


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _build_error() -> str | None:
    if (reason := build_error("cpu_fused")) == "":
        return None
    # Once per trial, whose log shows each warning again.
    warnings.warn(
        f"Torch's operations compute attention on CPUs, which is slower: {reason}", RuntimeWarning, stacklevel=2
    )
    return reason


def unsupported_reason(
    name: Backend, q: Tensor, k: Tensor, v: Tensor, spec: DropSpec, rescale: Rescale, mask: Tensor | None, top: int = 0
) -> str | None:
    """Return why a backend cannot compute a call, or None if it can."""
    reason = _unavailable_reason(name, q.device.type)
    if name == "eager" or reason is not None:
        return reason
    if is_transformed():
        return "torch.func transforms and forward-mode differentiation need torch operations"
    if mask is not None and mask.requires_grad:
        return "the mask requires gradients"
    if not q.numel() or not k.numel() or not v.numel():
        return "q, k or v is empty"
    if not q.shape[:2] == k.shape[:2] == v.shape[:2] or q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2]:
        return "its kernels do not broadcast q, k and v"
    if name == "triton":
        from dropbench.harness.attention.kernels import triton_launch

        if rescale == "detached" or top:
            return "the gradient is not that of a softmax"
        return triton_launch.unsupported_reason(q, v, spec)
    if mask is not None and mask.dtype == torch.float64:
        return "its kernel reads masks in float32"
    if k.shape[-2] > MAX_CPU_KEYS:
        return f"{k.shape[-2]} keys are more than {MAX_CPU_KEYS}"
    if rescale == "inverse" and spec.unit == "column":
        return "columns are dropped from the values"
    if top and mask is not None and mask.dtype != torch.bool:
        return "the largest allowed logits need a boolean mask"
    if top and k.shape[-2] > cpu_fused.MAX_TOP_KEYS:
        return f"{k.shape[-2]} keys are more than {cpu_fused.MAX_TOP_KEYS}"
    if not q.dtype == k.dtype == v.dtype or q.dtype == torch.float64:
        return "its kernel needs float32 or half precision, the same for q, k and v"
    if not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return "its kernel needs a contiguous last axis"
    return None


def _unavailable_reason(name: Backend, device: str) -> str | None:
    """Return why a backend can compute nothing on a type of device of this machine, or None if it can."""
    reason: str | None = None
    if name == "triton":
        from dropbench.harness.attention.kernels import triton_launch

        reason = triton_launch.unavailable_reason(device)
    elif name == "cpu":
        reason = _build_error() if device == "cpu" else f"its kernels run on CPUs, not on {device}"
    return reason
