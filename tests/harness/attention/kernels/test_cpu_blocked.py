"""The CPU backend computes the same function of the same random bits as torch operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.attention import dispatch
from harness.attention.kernels import cpu_blocked
from harness.attention.kernels.cpu_masks import BUFFERS
from harness.attention.reference.units import Rescale
from tests.harness.attention.attention_case import DROPS, LONG_COLUMNS, MASKS, Case, Drop, needs_compiler

DROPS_AND_RESCALES: list[tuple[Drop, Rescale]] = [
    *((drop, "renormalize") for drop in DROPS),
    *((drop, "inverse") for drop in DROPS if drop.unit != "column"),  # torch drops columns from the values
]


@pytest.fixture(params=["stored", "tiles", "small tiles"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that are stored, or recomputed for some heads or some rows at a time, with columns gathered."""
    if request.param != "stored":
        monkeypatch.setattr(dispatch, "MAX_STORED_NUMEL", 0)
        monkeypatch.setattr(dispatch, "should_gather", lambda *_: True)
    if request.param == "small tiles":
        monkeypatch.setattr(cpu_blocked, "L2_BYTES", 2**10)
        monkeypatch.setattr(cpu_blocked, "MIN_ROWS", 16)


@needs_compiler
@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("mask_type", MASKS)
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize(("drop", "rescale"), DROPS_AND_RESCALES, ids=str)
def test_cpu_matches_eager(drop: Drop, rescale: Rescale, causal: bool, mask_type: str) -> None:
    Case(drop, rescale, mask_type, causal=causal).assert_matches_eager("cpu")
    Case(drop, rescale, mask_type, causal=causal, transposed=False, ratio=0.9).assert_matches_eager("cpu")


@needs_compiler
@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_cpu_matches_eager_in_other_dtypes(dtype: torch.dtype) -> None:
    tolerance = 5e-5 if dtype == torch.float64 else 2e-2
    mask_type = "rows" if dtype == torch.float64 else "additive"  # stored masks have float32 at most
    Case(DROPS[0], "renormalize", mask_type, dtype=dtype).assert_matches_eager("cpu", tolerance)
    long = Case(LONG_COLUMNS, "renormalize", "padding", dtype=dtype, seqlen_q=200, batch_heads=(5, 6))
    long.assert_matches_eager("cpu", tolerance)


@needs_compiler
def test_memory_is_not_quadratic_in_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 tokens of two heads: a mask would take 128 MiB."""
    case = Case(Drop("element", seqlen_k=4096), "renormalize", seqlen_q=4096, batch_heads=(1, 2))
    sizes: list[int] = []
    take = BUFFERS.take

    def recording_take(numel: int) -> Tensor:
        sizes.append(numel)
        return take(numel)

    monkeypatch.setattr(BUFFERS, "take", recording_take)
    case.run("cpu")
    assert 0 < max(sizes) <= 2 * cpu_blocked.MIN_ROWS * 4096


@needs_compiler
@pytest.mark.parametrize("rescale", ["renormalize", "inverse"])
def test_nan_propagates_as_in_eager(rescale: Rescale, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_STORED_NUMEL", 0)
    case = Case(DROPS[0], rescale)
    with torch.no_grad():
        case.q[0, 0, 3, 2] = torch.nan
        case.v[1, 1, 5, 0] = torch.nan
    actual, expected = case.run("cpu")[0], case.run("eager")[0]
    assert torch.equal(actual.isnan(), expected.isnan())
    assert actual.isnan().any()
