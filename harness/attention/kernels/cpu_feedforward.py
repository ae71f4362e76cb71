"""A feed-forward network on one token on a CPU, for kept outputs: the Python side of ``cpu_feedforward.c``."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from harness.attention.kernels.c_library import gomp_parallel, load_function, load_library, struct_fields
from harness.attention.reference.sdpa import is_transformed


class _Args(ctypes.Structure):
    """`Args` of ``cpu_feedforward.c``."""

    _fields_ = struct_fields(int64="dim hidden_dim", void_p="x residual hidden_weight out_weight keep hidden out")


def is_supported(*tensors: Tensor) -> bool:
    """Return whether the kernel can be used: for contiguous float32 on a CPU, without autocast or transforms."""
    return (
        all(each.dtype == torch.float32 and each.is_cpu and each.is_contiguous() for each in tensors)
        and not (torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or is_transformed())
        and load_library("cpu_feedforward") is not None
    )


def add_feedforward(
    residual: Tensor, x: Tensor, hidden_weight: Tensor, out_weight: Tensor, keep_mask: Tensor
) -> Tensor:
    """Return residual + keep_mask ⊙ (out_weight · GELU(hidden_weight · x)) for one token.

    Only kept rows of `out_weight` are read, and `hidden_weight` only if there are any.

    Args:
        residual: C elements.
        x: C elements.
        hidden_weight: (D, C).
        out_weight: (C, D).
        keep_mask: boolean, C elements, contiguous.

    Returns:
        In the shape of `residual`.
    """
    hidden_dim, dim = hidden_weight.shape
    out, hidden = torch.empty_like(residual), residual.new_empty(hidden_dim)
    tensors = (x, residual, hidden_weight, out_weight, keep_mask, hidden, out)
    args = _Args(dim, hidden_dim, *(tensor.data_ptr() for tensor in tensors))
    load_function("cpu_feedforward", "add_feedforward")(ctypes.byref(args), torch.get_num_threads(), gomp_parallel())
    return out
