"""Gathered attention: removed keys cost nothing, and hide no infinity or NaN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.attention import dispatch
from harness.attention.kernels import cpu_columns
from harness.attention.reference.drop_masks import drop_mask
from tests.harness.attention.attention_case import LONG_COLUMNS, Case, needs_compiler

SHAPE = 5, 6, 1, LONG_COLUMNS.seqlen_k


@pytest.fixture(autouse=True)
def always_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "should_gather", lambda *_: True)


@needs_compiler
@pytest.mark.parametrize("tensor", ["k", "v"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
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


@needs_compiler
def test_removed_columns_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of keys is that of the head that keeps the most, rounded up to a full vector."""
    counts = []
    gather = cpu_columns._gather

    def recording_gather(source: Tensor, index: Tensor, count: int, out: Tensor) -> tuple[Tensor, bool]:
        counts.append(count)
        return gather(source, index, count, out)

    monkeypatch.setattr(cpu_columns, "_gather", recording_gather)
    case = Case(LONG_COLUMNS, "renormalize", seqlen_q=200, batch_heads=(5, 6))
    case.assert_matches_eager("cpu")
    max_kept = int((~drop_mask(case.spec, SHAPE)).sum(-1).max())
    expected = [counts[0]] * 4 + [LONG_COLUMNS.seqlen_k] * 2
    assert counts == expected, "forward and backward gather keys and values, then scatter gradients"
    assert max_kept <= counts[0] < max_kept + cpu_columns.ALIGN < LONG_COLUMNS.seqlen_k
