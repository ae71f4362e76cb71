"""Inputs of one attention call, and its result by each backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention import dispatch
from dropbench.harness.attention.backends import Backend, backend, select_backend
from dropbench.harness.attention.call import Call
from dropbench.harness.attention.kernels.c_library import build_error, load_library
from dropbench.harness.attention.reference.drop_masks import sample_spec
from dropbench.harness.attention.reference.units import Rescale, Unit

needs_compiler = pytest.mark.skipif(load_library("cpu_fused") is None, reason=f"no kernel: {build_error('cpu_fused')}")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

MASKS = ("none", "padding", "rows", "additive")


class Drop(NamedTuple):
    """Drop unit, its parameters, and the number of keys."""

    unit: Unit
    window: int = 1
    grid: tuple[int, int] | None = None
    num_prefix_tokens: int = 0
    seqlen_k: int = 65


DROPS = [
    Drop("element"), Drop("element", 5), Drop("column", 2), Drop("block", 3, (7, 9), 2),
    Drop("block", 2, (3, 40), 0, 120), Drop("cross", 1, (7, 9), 2),
]  # fmt: skip
LONG_COLUMNS = Drop("column", 2, seqlen_k=260)
"""Some vectors of keys more than each head keeps."""
MASKED = -1e4
"""Number that additive masks add to masked keys."""


class Case:
    """Random inputs of one call."""

    def __init__(
        self, drop: Drop, rescale: Rescale, mask_type: str = "none", *, causal: bool = False, seqlen_q: int = 40,
        dtype: torch.dtype = torch.float32, ratio: float = 0.4, head_dim: int = 16, transposed: bool = True,
        batch_heads: tuple[int, int] = (3, 2), top: int = 0,
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        batch, heads = batch_heads
        seqlen_k = drop.seqlen_k
        self.q, self.k, self.v = (
            (
                torch.randn(batch, n, heads, head_dim).transpose(1, 2)
                if transposed
                else torch.randn(batch, heads, n, head_dim)
            )
            .to(dtype)
            .requires_grad_()
            for n in (seqlen_q, seqlen_k, seqlen_k)
        )
        self.d_out = torch.randn(batch, heads, seqlen_q, head_dim).to(dtype)
        self.rescale, self.ratio, self.causal, self.top = rescale, ratio, causal, top
        self.mask = self._mask(mask_type, batch, seqlen_q, seqlen_k, dtype)
        self.spec = sample_spec(
            drop.unit, ratio, drop.window, seqlen_k, grid=drop.grid, num_prefix_tokens=drop.num_prefix_tokens, stream=3
        )

    @staticmethod
    def _mask(mask_type: str, batch: int, seqlen_q: int, seqlen_k: int, dtype: torch.dtype) -> Tensor | None:
        if mask_type == "padding":
            lengths = torch.linspace(1, seqlen_k, batch).long()
            return torch.arange(seqlen_k)[None, None, None] < lengths[:, None, None, None]
        if mask_type == "rows":
            allowed = torch.rand(batch, 1, seqlen_q, seqlen_k) < 0.5
            allowed[0, 0, 0] = False
            return allowed
        if mask_type == "additive":
            masked = torch.rand(seqlen_q, seqlen_k)
            return torch.randn(1, seqlen_q, seqlen_k).masked_fill(masked < 0.3, MASKED).to(dtype)
        return None

    def run(self, name: Backend) -> list[Tensor]:
        """Return the output and the gradients of q, k and v, computed by a backend."""
        with backend(name):
            assert select_backend(self.q, self.k, self.v, self.spec, self.rescale, self.mask, self.top) == name
            call = Call(self.q, self.k, self.v, self.mask, self.causal)
            out = dispatch.drop_attention(call, self.spec, self.rescale, self.ratio, top=self.top)
        return [out.detach(), *torch.autograd.grad(out, (self.q, self.k, self.v), self.d_out)]

    def assert_matches_eager(self, name: Backend, tolerance: float = 5e-5) -> None:
        """Assert that a backend equals `eager` up to rounding."""
        for actual, expected in zip(self.run(name), self.run("eager"), strict=True):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
