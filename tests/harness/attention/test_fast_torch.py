"""SDPA while a trial runs is torch's up to rounding, where our kernel computes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import fast_torch
from harness.attention.kernels import cpu_sgemm
from harness.attention.kernels.cpu_fused import FusedAttention
from harness.attention.reference.sdpa import plain_attention
from harness.training.environment import environment
from tests.harness.attention.attention_case import needs_compiler
from tests.harness.attention.kernels.test_cpu_sgemm import ignored_by_mkl

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not ignored_by_mkl, reason="only for MKL on processors with AVX-512 that are not Intel's"),
]
SHAPES = ((2, 3, 17, 17, 16), (1, 2, 130, 1, 8), (2, 2, 70, 600, 32), (1, 3, 5, 40, 20))
"""(batch, heads, queries, keys, head dimension)."""
Mask = Callable[[int, int, int], Tensor | None]
MASKS: dict[str, Mask] = {
    "none": lambda batch, seqlen_q, seqlen_k: None,
    "padding": lambda batch, seqlen_q, seqlen_k: torch.arange(seqlen_k)[None, None, None] < 1 + seqlen_k // 2,
    "rows": lambda batch, seqlen_q, seqlen_k: torch.rand(batch, 1, seqlen_q, seqlen_k) < 0.3,
    "bias": lambda batch, seqlen_q, seqlen_k: torch.randn(seqlen_q, seqlen_k),
    "no keys": lambda batch, seqlen_q, seqlen_k: torch.full((seqlen_q, seqlen_k), -torch.inf),
    "least number": lambda batch, seqlen_q, seqlen_k: torch.full((1, seqlen_k), torch.finfo(torch.float32).min),
}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the passes that our kernel computes; it computes small calls, too."""
    names: list[str] = []
    for name in ("forward", "backward"):
        compute = getattr(FusedAttention, name)

        def record(*args: object, name: str = name, compute: Callable[..., object] = compute) -> object:
            names.append(name)
            return compute(*args)

        monkeypatch.setattr(FusedAttention, name, record)
    monkeypatch.setattr(fast_torch, "MIN_MULTIPLICATIONS", 1)
    torch.manual_seed(0)
    return names


def attention(
    shape: tuple[int, ...], mask: Tensor | None, *, causal: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    """Return the output and gradients for inputs of the shape, equal in each call."""
    batch, heads, seqlen_q, seqlen_k, head_dim = shape
    generator = torch.Generator().manual_seed(1)
    q, k, v, d_out = (
        torch.randn(batch, n, heads, head_dim, generator=generator).transpose(1, 2).to(dtype).requires_grad_()
        for n in (seqlen_q, seqlen_k, seqlen_k, seqlen_q)
    )
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=0.3)
    return out, *torch.autograd.grad(out, (q, k, v), d_out)


@pytest.mark.parametrize("mask_type", [*MASKS, "causal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_torchs(shape: tuple[int, ...], mask_type: str, calls: list[str]) -> None:
    causal = mask_type == "causal"
    mask = None if causal else MASKS[mask_type](shape[0], shape[2], shape[3])
    expected = attention(shape, mask, causal=causal)
    assert not calls
    with fast_torch.fast_sdpa():
        actual = attention(shape, mask, causal=causal)
    assert calls == ["forward", "backward"]
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=4e-6 * max(1.0, float(theirs.detach().abs().max())))
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("mask_type", ["none", "padding", "bias"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, mask_type: str, calls: list[str]) -> None:
    mask = MASKS[mask_type](2, 70, 600)
    expected = attention(SHAPES[2], mask)
    half = mask.to(dtype) if mask_type == "bias" and mask is not None else mask
    with fast_torch.fast_sdpa():
        actual = attention(SHAPES[2], half, dtype=dtype)
    assert calls == ["forward", "backward"]
    for ours, exact in zip(actual, expected, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.float(), exact, rtol=2e-2, atol=2e-2)


def test_statistics_are_torchs() -> None:
    q, k, v = torch.randn(3, 2, 3, 70, 16)
    mask = torch.randn(70, 70)
    mask[5] = -torch.inf
    expected = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)[1]
    with fast_torch.fast_sdpa():
        actual = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)[1]
    allowed = torch.arange(70) != 5
    torch.testing.assert_close(actual[..., allowed], expected[..., allowed], rtol=1e-6, atol=1e-6)


def test_a_nan_reaches_its_rows() -> None:
    with fast_torch.fast_sdpa():
        for seqlen_k in (3, 40):
            q, k, v = torch.randn(1, 1, 20, 8), torch.randn(1, 1, seqlen_k, 8), torch.randn(1, 1, seqlen_k, 8)
            q[0, 0, 7, 2] = torch.nan
            is_nan = plain_attention(q, k, v).isnan()
            assert is_nan[0, 0, 7].all()
            assert is_nan.sum() == 8


ONES = torch.ones(1, 2, 40, 8)
OTHERS: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    "float64": lambda: attention(SHAPES[0], None, dtype=torch.float64),
    "dropout": lambda: (scaled_dot_product_attention(ONES, ONES, ONES, dropout_p=0.5),),
    "head dimensions": lambda: (scaled_dot_product_attention(ONES, ONES, ONES[..., :4]),),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_other_calls_are_torchs(call: Callable[[], tuple[Tensor, ...]], calls: list[str]) -> None:
    torch.manual_seed(0)
    expected = call()
    torch.manual_seed(0)
    with fast_torch.fast_torch():
        actual = call()
    assert not calls
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_small_calls_are_left_to_torch(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    for minimum, expected in ((2 * 3 * 17 * 17 * 16 + 1, 0), (2 * 3 * 17 * 17 * 16, 2)):
        monkeypatch.setattr(fast_torch, "MIN_MULTIPLICATIONS", minimum)
        with fast_torch.fast_sdpa():
            attention(SHAPES[0], None)
        assert len(calls) == expected


def test_the_context_ends(calls: list[str]) -> None:
    with fast_torch.fast_torch():
        attention(SHAPES[0], None)
    assert len(calls) == 2
    attention(SHAPES[0], None)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["is_used", "load_library"])
def test_nothing_is_replaced_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    owner = cpu_sgemm if name == "is_used" else fast_torch
    monkeypatch.setattr(owner, name, lambda *_: None)
    with fast_torch.fast_sdpa():
        attention(SHAPES[0], None)
    assert not calls


def test_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment(torch.device("cpu"))["sgemm"] == "dropbench"
    monkeypatch.setattr(cpu_sgemm, "is_used", lambda: False)
    assert "sgemm" not in environment(torch.device("cpu"))
