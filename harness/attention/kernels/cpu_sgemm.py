"""Matrix products in float32 where torch's BLAS does not use the processor's vectors: see ``cpu_sgemm.c``.

MKL, with which torch is built for x86, uses AVX-512 on Intel's processors only. On others that have it, products take
half the time here. Elsewhere, and without a C compiler, nothing changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from harness.attention.kernels.c_library import cpu_model, load_function, load_library, overridden
from harness.attention.kernels.cpu_masks import gomp_parallel, struct_fields

TORCH = ctypes.CDLL(torch._C.__file__)
MIN_MULTIPLICATIONS = 2**19
"""Products with fewer are left to torch: calling another function would take longer."""


class _Product(ctypes.Structure):
    """`Product` of ``cpu_sgemm.c``."""

    _fields_ = struct_fields(
        void_p="a b bias c", int64="m n k stride_a stride_b stride_c", int32="trans_a trans_b", float="alpha beta"
    )


# torch.compile evaluates these while it traces a graph, and treats their results as constants.


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def sgemm() -> int | None:
    """Return the address of a function with the interface of BLAS's ``sgemm_`` for one thread; None without one."""
    library = load_library("cpu_sgemm") if _ignored_by_mkl() else None
    return function_address(TORCH, "sgemm_") if library is None else function_address(library, "sgemm")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_used() -> bool:
    """Return whether products are computed here instead of by torch's BLAS."""
    return _ignored_by_mkl() and load_library("cpu_sgemm") is not None


@cache
def function_address(library: ctypes.CDLL, function: str) -> int | None:
    """Return the address of a function of a library; None if it has none of this name."""
    return ctypes.cast(getattr(library, function, 0), ctypes.c_void_p).value


@cache
def _ignored_by_mkl() -> bool:
    model = cpu_model()
    return b"avx512f" in model and b"GenuineIntel" not in model and torch.backends.mkl.is_available()


@contextmanager
def fast_sgemm() -> Iterator[None]:
    """Let `torch.mm` and `torch.addmm`, and with them linear layers and their gradients, take less time on a CPU.

    Results differ from torch's in the last digits.
    """
    if not is_used():
        yield
        return
    with overridden("mm", _mm), overridden("addmm", _addmm):
        yield


def _mm(torchs: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    product = multiply(a, b)
    return torchs(a, b) if product is None else product


def _addmm(
    torchs: Callable[..., Tensor], bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    is_plain = beta == alpha == 1 and bias.dtype == torch.float32 and bias.dim() == 1 and bias.stride(0) == 1
    product = multiply(a, b, bias) if is_plain else None
    return torchs(bias, a, b, beta=beta, alpha=alpha) if product is None else product


def multiply(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Return a (m, k) @ b (k, n) + bias (n); None for tensors that the kernel does not support, and small ones."""
    if not a.dtype == b.dtype == torch.float32 or not a.dim() == b.dim() == 2:
        return None
    (m, k), (rows, n) = a.shape, b.shape
    if k != rows or m * n * k < MIN_MULTIPLICATIONS or (bias is not None and len(bias) != n):
        return None
    layout_a, layout_b = _layout(a), _layout(b)
    if layout_a is None or layout_b is None:
        return None
    (stride_a, trans_a), (stride_b, trans_b) = layout_a, layout_b
    out = a.new_empty((m, n))
    product = _Product(
        a.data_ptr(), b.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr(), m, n, k,
        stride_a, stride_b, n, trans_a, trans_b, 1.0, 0.0,
    )  # fmt: skip
    load_function("cpu_sgemm", "multiply_shared")(ctypes.byref(product), torch.get_num_threads(), gomp_parallel())
    return out


def _layout(matrix: Tensor) -> tuple[int, bool] | None:
    """Return the stride of rows, and whether these are the columns of the matrix; None if neither is contiguous."""
    (rows, columns), (row_stride, column_stride) = matrix.shape, matrix.stride()
    if column_stride == 1 and row_stride >= columns:
        return row_stride, False
    return (column_stride, True) if row_stride == 1 and column_stride >= rows else None
