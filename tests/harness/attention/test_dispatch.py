"""The custom operations under torch.compile and dispatch modes, and calls without them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dropbench.harness.attention import dispatch
from dropbench.harness.attention.call import Call
from dropbench.harness.attention.reference.units import Rescale
from tests.harness.attention.attention_case import DROPS, LONG_COLUMNS, Case, Drop, needs_compiler

pytestmark = needs_compiler


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drop", "rescale"),
    [(DROPS[0], "renormalize"), (DROPS[0], "inverse"), (Drop("column", 2, seqlen_k=600), "renormalize")],
    ids=str,
)
def test_compiles_to_one_graph(drop: Drop, rescale: Rescale) -> None:
    """Columns that are removed outside of compiled graphs included."""
    case = Case(drop, rescale, seqlen_q=600, batch_heads=(2, 2))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return dispatch.drop_attention(Call(q, k, v), case.spec, rescale, 0.4) * 2

    expected = call(case.q, case.k, case.v)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(case.q, case.k, case.v), expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("drop", "detached", "top"),
    [(DROPS[0], False, 0), (DROPS[0], True, 0), (DROPS[0], False, 3), (LONG_COLUMNS, False, 0)],
    ids=str,
)
def test_fake_tensors_match_real_ones(drop: Drop, detached: bool, top: int, transposed: bool) -> None:
    """Compilers rely on the shapes, strides and dtypes of both passes' results."""
    case = Case(drop, "renormalize", seqlen_q=200, batch_heads=(5, 6), transposed=transposed)
    q, k, v = (tensor.detach() for tensor in (case.q, case.k, case.v))
    inputs: Any = q, k, v, None, None, *case.spec.flatten(), "cpu", False, 0.25, detached, top
    check: Any = torch.library.opcheck
    check(torch.ops.dropbench.drop_attention.default, inputs, test_utils="test_faketensor")
    outputs = torch.ops.dropbench.drop_attention(*inputs)
    backward_inputs = case.d_out, *outputs, *inputs
    check(torch.ops.dropbench.drop_attention_backward.default, backward_inputs, test_utils="test_faketensor")


class Seen(TorchDispatchMode):
    """Records the operations that run."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rescale", ["renormalize", "inverse"])
def test_dispatch_modes_see_the_operations_and_change_no_bit(rescale: Rescale) -> None:
    """Without a mode, torch's dispatcher is left out."""
    results, names = [], set[str]()
    for mode in (Seen(names), nullcontext()):
        case = Case(DROPS[0], rescale, "rows", seqlen_q=200)
        with mode:
            out = dispatch.drop_attention(Call(case.q, case.k, case.v, case.mask), case.spec, rescale, 0.4)
            results.append([out, *torch.autograd.grad(out, (case.q, case.k, case.v), case.d_out)])
    assert {"dropbench::drop_attention", "dropbench::drop_attention_backward"} <= names
    assert all(map(torch.equal, *results))


def test_second_derivatives_are_refused() -> None:
    case = Case(DROPS[0], "renormalize", seqlen_q=200)
    out = dispatch.drop_attention(Call(case.q, case.k, case.v), case.spec, "renormalize", 0.4)
    (gradient,) = torch.autograd.grad(out.square().sum(), case.q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("name", ["drop_attention", "drop_attention_backward"])
def test_compilers_leave_the_operations_out_of_cuda_graphs(name: str) -> None:
    """A graph would repeat the seed, a number on the CPU, which compilers do not see."""
    assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.dropbench, name).default.tags
