"""Stored masks, and reusable buffers for them."""

from __future__ import annotations

import pytest
import torch

from harness.attention import dispatch
from harness.attention.kernels.cpu_masks import BufferPool
from tests.harness.attention.attention_case import DROPS, LONG_COLUMNS, MASKS, Case, Drop, needs_compiler


@pytest.fixture(params=["columns masked", "columns gathered"])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MIN_FUSED_PAIRS", 2**62)
    if request.param == "columns gathered":
        monkeypatch.setattr(dispatch, "should_gather", lambda *_: True)


@needs_compiler
@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("mask_type", MASKS)
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("drop", DROPS, ids=str)
def test_stored_masks_match_eager(drop: Drop, causal: bool, mask_type: str) -> None:
    Case(drop, "renormalize", mask_type, causal=causal).assert_matches_eager("cpu")
    Case(drop, "renormalize", mask_type, causal=causal, transposed=False, ratio=0.9).assert_matches_eager("cpu")


@needs_compiler
@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_stored_masks_match_eager_in_other_dtypes(dtype: torch.dtype) -> None:
    tolerance = 5e-5 if dtype == torch.float64 else 2e-2
    mask_type = "rows" if dtype == torch.float64 else "additive"  # stored masks have float32 at most
    Case(DROPS[0], "renormalize", mask_type, dtype=dtype).assert_matches_eager("cpu", tolerance)
    long = Case(LONG_COLUMNS, "renormalize", "padding", dtype=dtype, seqlen_q=200, batch_heads=(5, 6))
    long.assert_matches_eager("cpu", tolerance)


@needs_compiler
def test_buffers_are_reused() -> None:
    pool = BufferPool()
    first = pool.take(pool.MIN_NUMEL)
    address = first.data_ptr()
    second = pool.take(pool.MIN_NUMEL)
    assert second.data_ptr() != address
    view = first[10:]
    del first
    assert pool.take(pool.MIN_NUMEL).data_ptr() != address, "a view keeps its buffer"
    del view
    assert pool.take(pool.MIN_NUMEL).data_ptr() == address
