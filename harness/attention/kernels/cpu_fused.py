"""Attention with dropped keys or weights on a CPU in one pass: the Python side of ``cpu_fused.c``."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from dropbench.harness.attention.kernels.c_library import gomp_parallel, load_function, struct_fields
from dropbench.harness.attention.reference.drop_masks import UNITS, DropSpec, start_threshold
from dropbench.harness.attention.reference.sdpa import MASKED_LOGIT_GAP

MAX_ROWS, MAX_KEYS = 128, 512
"""Queries and keys whose logits a thread holds: 256 KiB in float32, twice for the gradients."""
NUM_TENSORS = 8
TORCH = ctypes.CDLL(torch._C.__file__)


def torch_function(name: str) -> int | None:
    """Return the address of a C function of torch and the libraries that it is linked to; None if there is none."""
    return ctypes.cast(getattr(TORCH, name, 0), ctypes.c_void_p).value


def scipy_sgemm() -> int | None:
    """Return the address of the function ``sgemm`` of the BLAS of scipy."""
    from scipy.linalg.cython_blas import __pyx_capi__ as functions

    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address: int | None = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(
        functions["sgemm"], name(functions["sgemm"])
    )
    return address


SGEMM = torch_function("sgemm_") or scipy_sgemm()
SET_BLAS_THREADS = torch_function("MKL_Set_Num_Threads_Local")
"""The function that sets the number of MKL's threads; None without MKL."""


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


class _FusedArgs(ctypes.Structure):
    """`FusedArgs` of ``cpu_fused.c``."""

    _fields_ = (
        ("spec", DropBits), ("mask", MaskView), ("strides", ctypes.c_int64 * 4 * NUM_TENSORS),
        ("tensors", ctypes.c_void_p * NUM_TENSORS),
        *struct_fields(void_p="row_max row_scale full_max full_scale scratch sgemm set_blas_threads"),
        *struct_fields(
            int64="num_bh num_heads seqlen_q head_dim head_dim_v rows_per_part rows_per_block keys_per_block "
            "logits_numel bits_numel",
            float="softmax_scale keep_scale", int32="renormalize detached top causal num_threads",
        ),
    )  # fmt: skip


class FusedAttention:
    """One call, forward or backward with the same spec. Half precision is computed in float32.

    Arguments are those of `dropbench.harness.attention.dispatch.drop_attention`, except `keep_scale`: 1 / (1 − ratio)
    for `inverse` and None otherwise; and `detached`: whether that is the rescaling mode.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: DropSpec, keep_scale: float | None, *,
        causal: bool, scale: float, detached: bool = False, top: int = 0,
    ) -> None:  # fmt: skip
        self.dtype, self.inputs = q.dtype, (q.float(), k.float(), v.float())
        batch, heads, seqlen_q, head_dim = q.shape
        seqlen_k = k.shape[2]
        view, self._mask = _mask_view(mask, (batch, heads, seqlen_q, seqlen_k))
        keys = _align(seqlen_k) if top else min(MAX_KEYS, _align(seqlen_k))
        self.blocks = -(-seqlen_q // min(MAX_ROWS, MAX_ROWS * MAX_KEYS // keys))
        rows = -(-seqlen_q // self.blocks)
        self.args = _FusedArgs(
            spec=_drop_bits(spec, seqlen_k), mask=view, sgemm=SGEMM, set_blas_threads=SET_BLAS_THREADS,
            num_bh=batch * heads, num_heads=heads, seqlen_q=seqlen_q, head_dim=head_dim, head_dim_v=v.shape[-1],
            rows_per_block=rows, keys_per_block=keys,
            logits_numel=_align(rows * keys), bits_numel=_align(rows * -(-seqlen_k // 8) // 4 + 16),
            softmax_scale=scale, keep_scale=keep_scale or 1.0, renormalize=keep_scale is None and not top,
            detached=detached, top=top, causal=causal, num_threads=torch.get_num_threads(),
        )  # fmt: skip

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output (B, H, T, e), the softmax statistics (2 or 4, B, H, T), and an empty tensor.

        The statistics are each row's maximum and scale, such that the softmax is exp(logit − maximum) · scale. The
        log-sum-exp, which combines them, would lose all digits for masks that add −10⁹. If `detached`, those of the
        softmax over all keys follow.
        """
        q, _, v = self.inputs
        batch, heads, seqlen_q, _ = q.shape
        # SDPA's layout, in which models merge the heads without a copy.
        out = q.new_empty(batch, seqlen_q, heads, v.shape[-1]).transpose(1, 2)
        stats = q.new_empty(4 if self.args.detached else 2, batch, heads, seqlen_q)
        self._run(stats, 1, *self.inputs, out)
        return out.to(self.dtype), stats, torch.empty(0, dtype=self.dtype)

    def backward(self, d_out: Tensor, out: Tensor, stats: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v."""
        q, k, v = self.inputs
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        # With few heads, several threads share one, and sum its gradients of keys and values by part.
        parts = min(self.blocks, -(-2 * self.args.num_threads // self.args.num_bh))
        blocks_per_part = -(-self.blocks // parts)
        parts = -(-self.blocks // blocks_per_part)
        by_part = [dk[None], dv[None]]
        if parts > 1:
            by_part = [_scratch(parts * grad.numel()).view(parts, *grad.shape) for grad in (dk, dv)]
        if self.args.causal:  # else the first queries of each part overwrite them
            for grads in by_part:
                grads.zero_()
        self._run(stats, blocks_per_part, q, k, v, out.float(), d_out.float(), dq, *by_part)
        if parts > 1:
            for total, grads in zip((dk, dv), by_part, strict=True):
                torch.sum(grads, 0, out=total)
        return dq.to(self.dtype), dk.to(self.dtype), dv.to(self.dtype)

    def _run(self, stats: Tensor, blocks_per_part: int, *tensors: Tensor) -> None:
        args = self.args
        args.rows_per_part = blocks_per_part * args.rows_per_block
        args.row_max, args.row_scale, *full = (stat.data_ptr() for stat in stats)
        args.full_max, args.full_scale = full or (None, None)
        rows = [_with_rows(tensor) for tensor in tensors]  # keeps copies alive
        for index, tensor in enumerate(rows):
            args.tensors[index] = tensor.data_ptr()
            *outer, row_stride, _ = tensor.stride()
            # BLAS checks the stride even of a single row.
            strides = *(0,) * (3 - len(outer)), *outer, max(row_stride, tensor.shape[-1])
            args.strides[index] = (ctypes.c_int64 * 4)(*strides)
        scratch = _scratch(args.num_threads * (2 * args.logits_numel + args.bits_numel) + 16)
        args.scratch = scratch.data_ptr() + -scratch.data_ptr() % 64  # aligned to vectors
        load_function("cpu_fused", "attend")(ctypes.byref(args), gomp_parallel())


MAX_TOP_KEYS = MAX_ROWS * MAX_KEYS
"""Keys of a row with `top`, whose logits a thread holds."""


def _drop_bits(spec: DropSpec, seqlen_k: int) -> DropBits:
    seed = int(spec.philox_seed)
    threshold = int(start_threshold(seed, spec.stream, spec.start_prob))
    return DropBits(
        seqlen_k, seed % 2**64, spec.stream, threshold, UNITS.index(spec.unit), spec.window, *(spec.grid or (0, 0)),
        spec.num_prefix_tokens,
    )  # fmt: skip


def _mask_view(mask: Tensor | None, shape: tuple[int, int, int, int]) -> tuple[MaskView, Tensor | None]:
    """Return a mask, broadcastable to `shape`, for the kernel, and the tensor whose memory it points to."""
    if mask is None:
        return MaskView(), None
    is_boolean = mask.dtype == torch.bool
    masked_logit_max = 0.0 if is_boolean else torch.finfo(mask.dtype).min / 2
    mask = (mask if is_boolean else mask.to(torch.float32)).expand(shape)
    strides = (ctypes.c_int64 * 4)(*mask.stride())
    return MaskView(mask.data_ptr(), strides, 1 if is_boolean else 2, MASKED_LOGIT_GAP, masked_logit_max), mask


def _scratch(numel: int) -> Tensor:
    """Return uninitialized memory for float32."""
    return torch.empty(numel)


def _align(numel: int) -> int:
    """Round up to vectors of 16 floats."""
    return -(-numel // 16) * 16


def _with_rows(tensor: Tensor) -> Tensor:
    """Return (…, n, d) such that rows are contiguous and do not overlap, as BLAS needs."""
    is_valid = tensor.stride(-1) == 1 and (tensor.shape[-2] == 1 or tensor.stride(-2) >= tensor.shape[-1])
    return tensor if is_valid else tensor.contiguous()
