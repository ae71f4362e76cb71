"""On a GPU, the Triton kernels compute the function of torch operations in double precision on the CPU."""

from __future__ import annotations

import itertools
import random
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from dropbench.harness.attention.backends import Backend
from dropbench.harness.attention.kernels import triton_layout
from dropbench.harness.attention.reference.sdpa import plain_attention
from dropbench.harness.attention.reference.units import Rescale
from tests.harness.attention.attention_case import Case, Drop

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or not torch.cuda.is_available(), reason="there is no GPU, or Triton is not installed"
)

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
"""Of the norm of a sample's difference over the reference's, or over the output's where gradients cancel: with a single
key they are 0, and the output's rounding error in half precision."""
DROPS = [
    Drop("element"), Drop("element", 3), Drop("element", 33, seqlen_k=192), Drop("column", 2, seqlen_k=260),
    Drop("block", 3, (7, 9), 2), Drop("block", 1, (8, 16), 0, 128),
]  # fmt: skip
RESCALES: list[Rescale] = ["renormalize", "inverse"]
MASKS = [("none", False), ("none", True), ("padding", False), ("rows", True), ("additive", False)]
CASES = list(itertools.product(DROPS, RESCALES, MASKS, TOLERANCES, (24, 64, 128, 256), (128, 192, 200)))
random.Random(0).shuffle(CASES)
FAST, ALL = 8, 96
"""Cases of the fast tests, and all: the kernels of a case are compiled for up to half a minute."""


def _results(case: Case, name: Backend, **to: Any) -> list[torch.Tensor]:
    """Return the results of a backend for the tensors of a case after `Tensor.to`, in double precision on the CPU."""
    for tensor in ("q", "k", "v"):
        setattr(case, tensor, getattr(case, tensor).detach().to(**to).requires_grad_())
    case.d_out = case.d_out.to(**to)
    if case.mask is not None:
        case.mask = case.mask.to(**(to if case.mask.is_floating_point() else {"device": to["device"]}))
    return [result.cpu().double() for result in case.run(name)]


def _assert_match(on_gpu: list[torch.Tensor], case: Case, tolerance: float) -> None:
    results = _results(case, "eager", device="cpu", dtype=torch.double)
    for actual, expected in zip(on_gpu, results, strict=True):
        assert (_norms(actual - expected) <= tolerance * torch.maximum(_norms(expected), _norms(results[0]))).all()


def _norms(samples: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(samples.flatten(1), dim=1)
    return norms


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{number}-{case[3]}-{case[4]}", marks=[pytest.mark.slow] if number >= FAST else [])
        for number, case in enumerate(CASES[:ALL])
    ],
)
def test_kernels_match_double_precision(case: tuple[Any, ...]) -> None:
    drop, rescale, (mask, causal), dtype, head_dim, seqlen_q = case
    on_gpu, in_double = (
        Case(drop, rescale, mask, causal=causal, dtype=dtype, head_dim=head_dim, seqlen_q=seqlen_q) for _ in range(2)
    )
    _assert_match(_results(on_gpu, "triton", device="cuda"), in_double, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_heads_in_turns_match_double_precision(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits of few heads at a time, in two streams, several times: a race would change some results."""
    on_gpu, in_double = (
        Case(Drop("element", 2), "renormalize", "rows", dtype=dtype, head_dim=64, seqlen_q=256, batch_heads=(8, 8))
        for _ in range(2)
    )
    together = _results(on_gpu, "triton", device="cuda")
    monkeypatch.setattr(triton_layout, "_max_bits", lambda q: 1)
    for _ in range(10):
        assert all(map(torch.equal, together, _results(on_gpu, "triton", device="cuda")))
    _assert_match(together, in_double, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_queries_without_an_allowed_key_give_zero(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 3, 40, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 40, 40, dtype=torch.bool, device="cuda")
    mask[:, :, 0] = False
    out = plain_attention(q, k, v, mask=mask)
    assert not out[:, :, 0].any()
    d_q, *_ = torch.autograd.grad(out.float().square().sum(), (q, k, v))
    assert not d_q[:, :, 0].any()
    assert out[:, :, 1:].any()
    assert d_q.isfinite().all()
