"""Values and gradients of every unit and rescaling mode against the scalar reference, for fixed drop masks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from tests.harness.attention.reference import scalar_loops
from tests.harness.given import given_drop, site_with

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
MASKS = ("none", "padding", "boolean", "bias", "bias and -inf", "bias and minimum", "bias and -100", "bias and -1e9")
slow = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Case:
    """Random tensors of a random shape, and a random drop mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    dropped: Tensor
    mask: Tensor | None
    causal: bool
    scale: float | None
    ratio: float

    def leaves(self) -> list[Tensor]:
        """Return the inputs that require gradients, including an additive mask."""
        return [
            self.q,
            self.k,
            self.v,
            *([self.mask] if self.mask is not None and self.mask.is_floating_point() else []),
        ]


@st.composite
def cases(draw: st.DrawFn, unit: Unit) -> Case:
    batch, heads, queries = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    size, width, window = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    grid = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    prefix = draw(st.integers(0, 2))
    keys = prefix + grid[0] * grid[1]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = 1 if unit == "column" else queries
    # From no key to (nearly) all: the cases must include rows that lose every key.
    starts = torch.rand(batch, heads, rows, keys, generator=generator) < draw(
        st.sampled_from((0.0, 0.2, 0.5, 0.9, 1.0))
    )
    dilated = [scalar_loops.dilate(unit, row, window, grid, prefix) for row in starts.reshape(-1, keys).tolist()]
    kind = draw(st.sampled_from(MASKS))
    shape = draw(st.sampled_from([(batch, 1, 1, keys), (1, heads, queries, keys), (batch, heads, queries, keys)]))
    masked = torch.rand(shape, generator=generator) < draw(st.sampled_from((0.1, 0.5, 1.0)))
    mask: Tensor | None = None
    if kind == "padding":
        mask = ~masked[:1, :1, :1]
    elif kind == "boolean":
        mask = ~masked
    elif kind.startswith("bias"):
        values = {"minimum": torch.finfo(torch.float64).min, "-inf": -math.inf}
        at_masked = kind.rpartition(" and ")[2]
        mask = normal(*shape)
        if at_masked != "bias":
            value = values.get(at_masked)
            mask = mask.masked_fill(masked, float(at_masked) if value is None else value)
        mask.requires_grad_()
    return Case(
        q=normal(batch, heads, queries, size).requires_grad_(),
        k=normal(batch, heads, keys, size).requires_grad_(),
        v=normal(batch, heads, keys, width).requires_grad_(),
        dropped=torch.tensor(dilated).view(batch, heads, rows, keys),
        mask=mask,
        causal=draw(st.booleans()),
        scale=draw(st.sampled_from((None, 0.3))),
        ratio=draw(st.sampled_from((0.1, 0.5, 0.99))),
    )


def by_attend(case: Case, rescale: Rescale) -> Tensor:
    site = site_with(given_drop(case.dropped, rescale, case.ratio))
    return attend(case.q, case.k, case.v, site, training=True, mask=case.mask, causal=case.causal, scale=case.scale)


def by_loops(case: Case, rescale: Literal["after", "detached", "inverse"]) -> Tensor:
    return scalar_loops.attention(
        case.q, case.k, case.v, case.dropped,
        rescale=rescale, ratio=case.ratio, mask=case.mask, causal=case.causal, scale=case.scale,
    )  # fmt: skip


def gradients(out: Tensor, case: Case) -> list[Tensor]:
    grad_out = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad(out, case.leaves(), grad_out, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize("unit", UNITS)
def test_values_and_gradients_equal_the_reference(unit: Unit, rescale: Rescale) -> None:
    @slow
    @given(cases(unit))
    def check(case: Case) -> None:
        expected = by_loops(case, "after" if rescale == "renormalize" else rescale)
        out = by_attend(case, rescale)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
        for grad, expected_grad in zip(gradients(out, case), gradients(expected, case), strict=True):
            torch.testing.assert_close(grad, expected_grad, rtol=0, atol=1e-10)

    check()


def test_the_rule_for_forbidden_keys_is_the_one_documented() -> None:
    """A bias of −100 (Swin) masks a key, −79 does not; if all keys are that low, none is masked."""
    q, k, v = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0]]]])
    site = site_with(given_drop(torch.tensor([[[[True, False]]]]), "renormalize"))

    def out(*bias: float) -> float:
        return float(attend(q, k, v, site, training=True, mask=torch.tensor([[[bias]]])))

    assert out(0.0, -79.0) == 3.0  # the kept key has all the weight, however low
    assert out(0.0, -81.0) == 1.0  # no allowed key is left: the row keeps its weights
    assert out(0.0, -100.0) == 1.0
    assert out(-100.0, -100.0) == 3.0
    assert out(0.0, -1e9) == 1.0
    assert out(0.0, torch.finfo(torch.float32).min) == 1.0
    assert out(0.0, -math.inf) == 1.0
    minimum = torch.finfo(torch.float32).min
    assert out(minimum, minimum) == 2.0  # without an allowed key, as in evaluation: equal weights
