"""One rule of precision for all dtypes of queries and masks, regularizers, backends, training and evaluation."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention import gathered
from dropbench.harness.attention.backends import backend
from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from tests.covering import each_pair
from tests.harness.attention.attention_case import needs_compiler, needs_triton
from tests.harness.attention.reference import scalar_loops
from tests.harness.given import drop_site, given_drop, site_with

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MASKS = (None, torch.bool, *DTYPES)
DROPS: list[tuple[Unit | None, Rescale]] = [
    ("element", "renormalize"), ("element", "inverse"), ("column", "renormalize"), ("column", "inverse"),
    (None, "renormalize"), (None, "inverse"),
]  # fmt: skip
"""None: a mask of one's own, which no backend but `eager` computes."""
BATCH, HEADS, QUERIES, KEYS, SIZE, RATIO = 1, 2, 3, 6, 4, 0.4
SHAPE = BATCH, HEADS, QUERIES, KEYS


def site_for(unit: Unit | None, rescale: Rescale) -> Site:
    if unit is not None:
        return drop_site(unit, ratio=RATIO, window=2, rescale=rescale)
    dropped = torch.rand(SHAPE, generator=torch.Generator().manual_seed(3)) < RATIO
    return site_with(given_drop(dropped, rescale, RATIO))


def inputs(dtype: torch.dtype, mask_dtype: torch.dtype | None) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None]:
    """Queries, keys and values, and a mask that hides some keys and one whole row.

    Numbers of an additive mask are around 30, so that rounding them to fewer digits shows in the weights.
    """
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(BATCH, HEADS, n, SIZE, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for n in (QUERIES, KEYS, KEYS)
    )
    allowed = torch.rand(1, HEADS, QUERIES, KEYS, generator=generator) < 0.8
    allowed[0, 1, 2] = False
    if mask_dtype is None or mask_dtype == torch.bool:
        return (q, k, v), allowed if mask_dtype else None
    bias = 30 + torch.randn(allowed.shape, generator=generator, dtype=torch.float64)
    return (q, k, v), bias.masked_fill(~allowed, -torch.inf).to(mask_dtype)


@cache
def exact(
    dtype: torch.dtype, mask_dtype: torch.dtype | None, unit: Unit | None, rescale: Rescale, *, training: bool
) -> list[Tensor]:
    """Output and gradients by scalar float64 code: of the numbers that the tensors hold, and nothing else rounded."""
    leaves, mask = inputs(dtype, mask_dtype)
    q, k, v = (leaf.detach().double().requires_grad_() for leaf in leaves)
    site = site_for(unit, rescale)
    torch.manual_seed(1)
    dropped = torch.zeros(SHAPE, dtype=torch.bool)
    if training:
        dropped = site.regularizer.sample_drop_mask(SHAPE, site, torch.device("cpu"))  # type: ignore[union-attr]
    if mask is not None and mask.is_floating_point():
        mask = mask.to(torch.promote_types(dtype, torch.float32)).double()
    how: object = "inverse" if rescale == "inverse" and training else "after"
    out = scalar_loops.attention(q, k, v, dropped, rescale=how, ratio=RATIO, mask=mask)  # type: ignore[arg-type]
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad_out())]


def grad_out() -> Tensor:
    return torch.linspace(-1.0, 1.0, BATCH * HEADS * QUERIES * SIZE, dtype=torch.float64).view(*SHAPE[:3], SIZE)


def check(
    dtype: torch.dtype, mask_dtype: torch.dtype | None, unit: Unit | None, rescale: Rescale, *, training: bool = True
) -> None:
    """The output has the dtype of the queries; it and the gradients differ from exact ones by a few of its units."""
    leaves, mask = inputs(dtype, mask_dtype)
    torch.manual_seed(1)
    out = attend(*leaves, site_for(unit, rescale), training=training, mask=mask)
    results = [out.detach(), *torch.autograd.grad(out, leaves, grad_out().to(dtype))]
    for result, expected in zip(results, exact(dtype, mask_dtype, unit, rescale, training=training), strict=True):
        assert result.dtype == dtype
        error = (result.double() - expected).abs().max() / expected.abs().max()
        computed = torch.promote_types(dtype, torch.float32)  # masked logits are around 32
        assert error <= 4 * torch.finfo(dtype).eps + 32 * torch.finfo(computed).eps


PATHS = [(*drop, name) for drop in DROPS for name in (("eager",) if drop[0] is None else ("eager", "cpu"))]


@needs_compiler
@each_pair(path=PATHS, mask_dtype=MASKS, dtype=DTYPES)
def test_training_is_exact_up_to_rounding(
    dtype: torch.dtype,
    mask_dtype: torch.dtype | None,
    path: tuple[Unit | None, Rescale, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit, rescale, name = path
    monkeypatch.setattr(gathered, "MIN_SEQLEN", 0)
    with backend(name):
        check(dtype, mask_dtype, unit, rescale)


@pytest.mark.parametrize("mask_dtype", MASKS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_evaluation_is_exact_up_to_rounding(dtype: torch.dtype, mask_dtype: torch.dtype | None) -> None:
    check(dtype, mask_dtype, "element", "inverse", training=False)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("rescale", ["renormalize", "inverse"])
def test_triton_is_exact_up_to_rounding(rescale: Rescale) -> None:
    with backend("triton"):
        for dtype, mask_dtype in itertools.product((torch.float16, torch.float32), MASKS):
            check(dtype, mask_dtype, "element", rescale)


@each_pair(drop=DROPS, dtype=DTYPES, mask_dtype=DTYPES)
def test_a_mask_gets_gradients_in_its_own_dtype(
    dtype: torch.dtype, mask_dtype: torch.dtype, drop: tuple[Unit | None, Rescale]
) -> None:
    unit, rescale = drop
    for training in (True, False):
        leaves, mask = inputs(dtype, mask_dtype)
        assert mask is not None
        torch.manual_seed(1)
        out = attend(*leaves, site_for(unit, rescale), training=training, mask=mask.requires_grad_())
        assert out.dtype == dtype
        (grad,) = torch.autograd.grad(out, mask, grad_out().to(dtype))
        assert grad.dtype == mask_dtype
        assert grad.isfinite().all()
        assert grad.abs().sum() > 0


@each_pair(drop=DROPS, mask_dtype=[None, torch.bool, torch.float32], causal=[False, True], training=[False, True])
def test_without_keys_the_output_is_0(
    drop: tuple[Unit | None, Rescale], mask_dtype: torch.dtype | None, causal: bool, training: bool
) -> None:
    unit, rescale = drop
    (q, k, v), _ = inputs(torch.float32, None)
    mask = None if mask_dtype is None else torch.ones(1, 1, QUERIES, 0, dtype=mask_dtype)
    site, shapes = site_for(unit, rescale), []
    site.probe = lambda _, weights: shapes.append(weights.shape)
    site.mc_samples = 3
    out = attend(q, k[:, :, :0], v[:, :, :0], site, training=training, mask=mask, causal=causal)
    assert torch.equal(out, torch.zeros(*SHAPE[:3], SIZE))
    assert shapes == [(*SHAPE[:3], 0)]
    assert all((grad == 0).all() for grad in torch.autograd.grad(out.sum(), (q, k, v)))
