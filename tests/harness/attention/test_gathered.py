"""Gathered attention: equal to masked columns; removed keys cost nothing, and hide no infinity or NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention import gathered
from dropbench.harness.attention.reference.drop_masks import drop_mask
from dropbench.harness.attention.reference.sdpa import sdpa
from tests.harness.attention.attention_case import DROPS, LONG_COLUMNS, Case, needs_compiler

SHAPE = 5, 6, 1, LONG_COLUMNS.seqlen_k
pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def also_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "MIN_SEQLEN", 0)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of gathered keys."""
    counts: list[int] = []

    def recording_sdpa(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        counts.append(k.shape[2])
        return sdpa(q, k, v, **options)

    monkeypatch.setattr(gathered, "sdpa", recording_sdpa)
    return counts


@pytest.mark.parametrize("mask_type", ["none", "padding"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("ratio", [0.4, 0.9])
def test_gathered_keys_match_eager(mask_type: str, transposed: bool, ratio: float, counts: list[int]) -> None:
    case = Case(LONG_COLUMNS, "renormalize", mask_type, ratio=ratio, transposed=transposed)
    case.assert_matches_eager("cpu")
    assert len(counts) == 1


def test_rows_that_attend_to_different_keys_are_not_gathered(counts: list[int]) -> None:
    Case(LONG_COLUMNS, "renormalize", causal=True).assert_matches_eager("cpu")
    Case(LONG_COLUMNS, "renormalize", "rows").assert_matches_eager("cpu")
    Case(DROPS[0], "renormalize").assert_matches_eager("cpu")
    assert not counts


@pytest.mark.parametrize("tensor", ["k", "v"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_removed_columns_hide_no_infinity_or_nan(dtype: torch.dtype, number: float, tensor: str) -> None:
    """They propagate through a weight of 0, as in plain attention."""
    case = Case(LONG_COLUMNS, "renormalize", dtype=dtype, seqlen_q=200, batch_heads=(5, 6))
    dropped_key = int(drop_mask(case.spec, SHAPE)[3, 1, 0].nonzero()[0])
    assert not case.run("cpu")[0].isnan().any()
    with torch.no_grad():
        getattr(case, tensor)[3, 1, dropped_key, 0] = number
    actual, expected = case.run("cpu")[0], case.run("eager")[0]
    assert torch.equal(actual.isnan(), expected.isnan())
    assert actual.isnan().any()


def test_removed_columns_are_not_computed(counts: list[int]) -> None:
    """The number of keys is that of the head that keeps the most, rounded up to a full vector."""
    case = Case(LONG_COLUMNS, "renormalize", seqlen_q=200, batch_heads=(5, 6))
    case.run("cpu")
    max_kept = int((~drop_mask(case.spec, SHAPE)).sum(-1).max())
    assert max_kept <= counts[0] < max_kept + gathered.ALIGN < LONG_COLUMNS.seqlen_k
