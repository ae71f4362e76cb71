"""Masks that are made again for the backward pass: bitwise equal to a stored mask, and not stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.attention import dispatch, masked
from harness.attention.backends import backend
from harness.attention.reference.drop_masks import drop_mask
from harness.attention.reference.eager import merge_keep_mask
from harness.attention.reference.sdpa import fit_mask, sdpa, with_causal
from tests.harness.attention.attention_case import DROPS, MASKS, Case, Drop, needs_compiler

MAKERS = [pytest.param("cpu", marks=needs_compiler), "eager"]


@pytest.fixture(params=[1, 2 * 40 * 65], ids=["head by head", "sample by sample"], autouse=True)
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "MAX_MASK_NUMEL", request.param)
    monkeypatch.setattr(dispatch, "MIN_FUSED_PAIRS", 2**62)
    monkeypatch.setattr(dispatch, "should_gather", lambda *_: False)


def with_stored_mask(case: Case) -> Tensor:
    """Return the output of one call of SDPA with the mask of all heads."""
    shape = *case.q.shape[:3], case.k.shape[2]
    mask = with_causal(case.mask, shape[2], shape[3], case.q.device) if case.causal else case.mask
    additive = merge_keep_mask(~drop_mask(case.spec, shape), mask, case.q.dtype)
    return sdpa(case.q, case.k, case.v, mask=fit_mask(additive, case.q.dtype))


def gradients(case: Case, out: Tensor) -> list[Tensor]:
    return [out.detach(), *torch.autograd.grad(out, (case.q, case.k, case.v), case.d_out.to(out.dtype))]


def assert_equal(case: Case, maker: Any) -> None:
    expected = gradients(case, with_stored_mask(case))
    for actual, wanted in zip(case.run(maker), expected, strict=True):
        assert torch.equal(actual, wanted)
        assert actual.stride() == wanted.stride()


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("mask_type", MASKS)
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("drop", DROPS, ids=str)
def test_equals_a_stored_mask(drop: Drop, causal: bool, mask_type: str, maker: Any) -> None:
    assert_equal(Case(drop, "renormalize", mask_type, causal=causal), maker)
    assert_equal(Case(drop, "renormalize", mask_type, causal=causal, ratio=0.9, head_dim=12, transposed=False), maker)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_equals_a_stored_mask_in_other_dtypes(dtype: torch.dtype, maker: Any) -> None:
    assert_equal(Case(DROPS[0], "renormalize", "rows", dtype=dtype, head_dim=12), maker)
    assert_equal(Case(Drop("element", seqlen_k=260), "renormalize", dtype=dtype, seqlen_q=200), maker)


@pytest.mark.parametrize("maker", MAKERS)
def test_autocast_rounds_the_mask(maker: Any) -> None:
    case = Case(DROPS[0], "renormalize", "additive")
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(case, with_stored_mask(case))
        actual = case.run(maker)
    assert actual[0].dtype == torch.bfloat16
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("maker", MAKERS)
def test_no_mask_is_stored(maker: Any) -> None:
    case = Case(DROPS[0], "renormalize", seqlen_q=64)
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        case.run(maker)
    batch, heads, seqlen_q, head_dim = case.q.shape
    assert max(saved) == batch * heads * case.k.shape[2] * head_dim < batch * heads * seqlen_q * case.k.shape[2]


def test_what_torch_computes_otherwise_is_left_to_it() -> None:
    case = Case(DROPS[0], "renormalize", "additive")
    assert case.mask is not None
    assert masked.supports(case.q, case.k, case.v, case.mask)
    assert not masked.supports(case.q, case.k, case.v, case.mask.clone().requires_grad_())
    assert not masked.supports(case.q, case.k, case.v[..., :8], case.mask)
    assert not masked.supports(case.q.mT.contiguous().mT, case.k, case.v, None)
    assert not masked.supports(case.q, case.k[:, :, :0], case.v[:, :, :0], None)
    with sdpa_kernel(SDPBackend.MATH), backend("eager"):
        assert not masked.supports(case.q, case.k, case.v, None)
        out = dispatch.drop_attention(case.q, case.k, case.v, case.spec, "renormalize", 0.4)
        (dq,) = torch.autograd.grad(out.square().sum(), case.q, create_graph=True)
        assert torch.autograd.grad(dq.square().sum(), case.k)[0].abs().sum() > 0
