"""The fused CPU kernel computes the same function of the same random bits as torch operations, in one pass."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention import dispatch
from dropbench.harness.attention.backends import backend
from dropbench.harness.attention.call import Call
from dropbench.harness.attention.kernels import cpu_fused
from dropbench.harness.attention.kernels.c_library import load_function
from dropbench.harness.attention.reference.sdpa import attention_weights
from dropbench.harness.attention.reference.units import Rescale
from tests.covering import each_pair
from tests.harness.attention import attention_case
from tests.harness.attention.attention_case import DROPS, MASKS, Case, Drop, needs_compiler

RESCALES: tuple[Rescale, ...] = get_args(Rescale)
DROPS_AND_RESCALES = [
    (drop, rescale) for drop in DROPS for rescale in RESCALES if (drop.unit, rescale) != ("column", "inverse")
]

pytestmark = needs_compiler


@pytest.fixture(params=["one block", "blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows and keys of a head at a time, or some."""
    if request.param == "blocks":
        monkeypatch.setattr(cpu_fused, "MAX_ROWS", 16)
        monkeypatch.setattr(cpu_fused, "MAX_KEYS", 48)


@pytest.mark.usefixtures("blocks")
@each_pair(drop_and_rescale=DROPS_AND_RESCALES, causal=[False, True], mask_type=[*MASKS])
def test_fused_matches_eager(
    drop_and_rescale: tuple[Drop, Rescale], causal: bool, mask_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, rescale = drop_and_rescale
    # SDPA, on which eager is based, loses digits in rows of -1e4, because it stores the log-sum-exp.
    monkeypatch.setattr(attention_case, "MASKED", -200.0)
    Case(drop, rescale, mask_type, causal=causal).assert_matches_eager("cpu")
    Case(drop, rescale, mask_type, causal=causal, transposed=False, ratio=0.9).assert_matches_eager("cpu")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rescale", RESCALES)
def test_threads_that_share_a_head_match_eager(
    rescale: Rescale, threads: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    torch.set_num_threads(threads)
    monkeypatch.setattr(cpu_fused, "MAX_ROWS", 16)
    case = Case(DROPS[0], rescale, seqlen_q=90, batch_heads=(1, 1))
    case.assert_matches_eager("cpu")
    for first, second in zip(case.run("cpu"), case.run("cpu"), strict=True):
        assert torch.equal(first, second), "results are a function of the number of threads"


def test_one_region_of_threads_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that waited for each other by tile would all stall when one of them loses its core."""
    calls: list[object] = []
    kernel = load_function("cpu_fused", "attend")

    def recording_kernel(*args: object) -> None:
        calls.append(args)
        kernel(*args)

    monkeypatch.setattr(cpu_fused, "load_function", lambda *names: recording_kernel)
    Case(DROPS[0], "inverse", seqlen_q=1000, batch_heads=(4, 2)).run("cpu")
    assert len(calls) == 2, "one forward, one backward"


@pytest.mark.parametrize("rescale", RESCALES)
def test_memory_is_not_quadratic_in_the_tokens(rescale: Rescale, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 tokens of two heads: a mask would take 128 MiB."""
    case = Case(Drop("element", seqlen_k=4096), rescale, seqlen_q=4096, batch_heads=(1, 2))
    sizes: list[int] = []
    scratch = cpu_fused._scratch

    def recording_scratch(numel: int) -> Tensor:
        sizes.append(numel)
        return scratch(numel)

    monkeypatch.setattr(cpu_fused, "_scratch", recording_scratch)
    case.run("cpu")
    assert 0 < max(sizes) <= torch.get_num_threads() * 2**18


@pytest.mark.parametrize("rescale", RESCALES)
def test_rows_that_are_masked_by_a_large_number_keep_their_gradients(rescale: Rescale) -> None:
    """Logits of about -1e9 are equal in float32, so the weights are those of queries of 0."""
    case = Case(DROPS[0], rescale)
    case.mask = torch.full((1, 1, 1, DROPS[0].seqlen_k), -1e9)
    out, _, _, dv = case.run("cpu")
    case.q, case.mask = torch.zeros_like(case.q, requires_grad=True), None
    expected_out, _, _, expected_dv = case.run("cpu")
    torch.testing.assert_close((out, dv), (expected_out, expected_dv))


def test_values_of_another_head_dimension_match_eager() -> None:
    case = Case(DROPS[0], "renormalize", "rows")
    with torch.no_grad():
        case.v = case.v[..., :8].requires_grad_()
    case.d_out = case.d_out[..., :8]
    case.assert_matches_eager("cpu")


def test_expanded_inputs_match_eager() -> None:
    """Rows that share memory, and gradients that are all one number."""
    case = Case(DROPS[0], "inverse")
    with torch.no_grad():
        case.k = case.k[:, :, :1].expand_as(case.k).requires_grad_()
    case.d_out = torch.ones(()).expand_as(case.d_out)
    case.assert_matches_eager("cpu")


@pytest.mark.parametrize("rescale", RESCALES)
def test_the_blas_of_scipy_matches_eager(rescale: Rescale, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used where torch is built without one."""
    monkeypatch.setattr(cpu_fused, "SGEMM", cpu_fused.scipy_sgemm())
    monkeypatch.setattr(cpu_fused, "SET_BLAS_THREADS", None)
    Case(DROPS[0], rescale).assert_matches_eager("cpu")
    Case(DROPS[0], rescale, causal=True, seqlen_q=200).assert_matches_eager("cpu")


@pytest.mark.usefixtures("blocks")
@each_pair(mask_type=["none", "padding", "rows"], causal=[False, True], top=[1, 5, 64, 100])
def test_the_largest_logits_become_0_as_in_eager(top: int, causal: bool, mask_type: str) -> None:
    """Rows with fewer allowed keys than `top` included."""
    case = Case(Drop("element"), "renormalize", mask_type, causal=causal, top=top)
    case.assert_matches_eager("cpu")
    dropped = Case(Drop("element"), "renormalize", mask_type, causal=causal)
    assert not torch.allclose(case.run("cpu")[0], dropped.run("cpu")[0])


def test_of_equal_logits_no_more_than_the_largest_become_0() -> None:
    """All logits are 1, and all keys are drawn: three of them become 0, and its gradients are as those of eager."""
    case = Case(Drop("element", seqlen_k=40), "renormalize", ratio=0.999999, head_dim=40, top=3)
    with torch.no_grad():
        case.q.fill_(1 / 40**0.5)
        case.k.fill_(1.0)
        case.v.copy_(torch.eye(40).expand_as(case.v))
    weights = case.run("cpu")[0]
    torch.testing.assert_close(weights.amin(), 1 / (3 + 37 * torch.tensor(1.0).exp()))
    assert ((weights < weights.amax() / 2).sum(dim=-1) == 3).all()


def test_additive_masks_and_too_many_keys_leave_the_largest_logits_to_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    Case(DROPS[0], "renormalize", "additive", top=3).assert_matches_eager("eager")
    monkeypatch.setattr(cpu_fused, "MAX_TOP_KEYS", DROPS[0].seqlen_k - 1)
    Case(DROPS[0], "renormalize", top=3).assert_matches_eager("eager")


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("mask_type", ["none", "padding", "rows"])
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
def test_entropy_equals_that_of_the_weights(causal: bool, mask_type: str) -> None:
    case = Case(DROPS[0], "renormalize", mask_type, causal=causal)
    leaves = case.q, case.k, case.v
    observed = dispatch.attention_and_entropy(Call(*leaves, case.mask, causal))
    assert observed is not None
    weights = attention_weights(case.q, case.k, mask=case.mask, causal=causal)
    expected = weights @ case.v, torch.special.entr(weights.clamp_min(1e-30)).sum(dim=-1)
    torch.testing.assert_close(observed, expected, rtol=5e-5, atol=5e-5)
    d_entropy = torch.linspace(-1.0, 2.0, expected[1].numel()).view(expected[1].shape)
    grads, expected_grads = (
        torch.autograd.grad(both, leaves, (case.d_out, d_entropy)) for both in (observed, expected)
    )
    torch.testing.assert_close(grads, expected_grads, rtol=1e-4, atol=1e-4)


def test_entropy_of_other_calls_is_left_to_the_caller() -> None:
    case, additive = Case(DROPS[0], "renormalize"), Case(DROPS[0], "renormalize", "additive").mask
    leaves = case.q, case.k, case.v
    assert dispatch.attention_and_entropy(Call(*leaves, additive)) is None
    q, k, v = (tensor.double() for tensor in leaves)
    assert dispatch.attention_and_entropy(Call(q, k, v)) is None
    with backend("eager"):
        assert dispatch.attention_and_entropy(Call(*leaves)) is None
