"""The custom operations under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.attention import dispatch
from harness.attention.reference.units import Rescale
from tests.harness.attention.attention_case import DROPS, LONG_COLUMNS, Case, Drop, needs_compiler


@pytest.fixture(autouse=True, params=[False, True], ids=["fused columns", "gathered columns"])
def gather(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "should_gather", lambda *_: request.param)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("drop", "rescale"),
    [(DROPS[0], "renormalize"), (DROPS[0], "inverse"), (LONG_COLUMNS, "renormalize")],
    ids=str,
)
def test_compiles_to_one_graph(drop: Drop, rescale: Rescale) -> None:
    case = Case(drop, rescale, seqlen_q=200, batch_heads=(5, 6))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return dispatch.drop_attention(q, k, v, case.spec, rescale, 0.4) * 2

    expected = call(case.q, case.k, case.v)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(case.q, case.k, case.v), expected)


@needs_compiler
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("detached", "top"), [(False, 0), (True, 0), (False, 3)])
@pytest.mark.parametrize("drop", [DROPS[0], LONG_COLUMNS], ids=str)
def test_fake_tensors_match_real_ones(
    drop: Drop, detached: bool, top: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers rely on the shapes, strides and dtypes of both passes' results."""
    monkeypatch.setattr(dispatch, "MIN_FUSED_PAIRS", 0)
    case = Case(drop, "renormalize", seqlen_q=200, batch_heads=(5, 6), transposed=transposed)
    q, k, v = (tensor.detach() for tensor in (case.q, case.k, case.v))
    inputs: Any = q, k, v, None, *case.spec.flatten(), "cpu", None, False, 0.25, detached, top
    check: Any = torch.library.opcheck
    check(torch.ops.dropbench.drop_attention.default, inputs, test_utils="test_faketensor")
    outputs = torch.ops.dropbench.drop_attention(*inputs)
    backward_inputs = case.d_out, *outputs, *inputs
    check(torch.ops.dropbench.drop_attention_backward.default, backward_inputs, test_utils="test_faketensor")
