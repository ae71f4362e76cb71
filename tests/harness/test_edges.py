"""Edges: rows that lose everything, tiny and empty shapes, half precision, NaN."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from harness.attention import attend
from harness.regularizers.drop import Rescale, Unit
from tests.harness.given import TOKENS, drop_site, given_drop, masks, qkv, site_of, site_with

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
each_unit = pytest.mark.parametrize("unit", UNITS)
each_rescale = pytest.mark.parametrize("rescale", RESCALES)


each_mask = pytest.mark.parametrize("mask", list(masks()))


# Rows that lose everything.


@pytest.mark.parametrize("columns", [False, True])
@each_mask
def test_all_keys_dropped(columns: bool, mask: str) -> None:
    """`renormalize` keeps the unregularised weights, with their gradients; `inverse` gives 0, with none."""
    dropped = torch.ones(2, 2, 1 if columns else TOKENS, TOKENS, dtype=torch.bool)
    leaves = qkv()
    q, k, v = leaves
    given = masks()[mask]
    plain = attend(q, k, v, site_with(None), training=False, mask=given)
    expected = torch.autograd.grad(plain.square().sum(), leaves)
    out = attend(q, k, v, site_with(given_drop(dropped, "renormalize")), training=True, mask=given)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-6)
    for grad, wanted in zip(torch.autograd.grad(out.square().sum(), leaves), expected, strict=True):
        torch.testing.assert_close(grad, wanted, rtol=0, atol=1e-5)
    out = attend(q, k, v, site_with(given_drop(dropped, "inverse")), training=True, mask=given)
    assert (out == 0).all()
    assert all((grad == 0).all() for grad in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize("padding", [torch.finfo(torch.float32).min, -math.inf, -1e9, -1e4, -100.0])
def test_the_only_keys_left_are_hidden_ones(padding: float) -> None:
    """All keys that a row may attend to are dropped and only padding is left: the padding still gets nothing."""
    q, k, v = qkv()
    hidden = torch.zeros(2, 1, 1, TOKENS)
    hidden[..., -2:] = padding
    dropped = (torch.arange(TOKENS) < TOKENS - 2).expand(2, 2, TOKENS, TOKENS)
    for mask in (hidden, hidden == 0):
        out = attend(q, k, v, site_with(given_drop(dropped, "renormalize")), training=True, mask=mask)
        expected = scaled_dot_product_attention(q, k[:, :, :-2], v[:, :, :-2]) if padding > -200 else None
        expected = expected if expected is not None else scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)


@each_unit
@each_rescale
@pytest.mark.parametrize("kind", ["boolean", "-inf"])
def test_a_row_that_may_attend_to_nothing_gives_0_and_finite_gradients(unit: Unit, rescale: Rescale, kind: str) -> None:
    leaves = qkv()
    mask = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool)
    mask[0, :, 3] = False  # one row
    mask[1] = False  # a whole sample
    if kind == "-inf":
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf).requires_grad_()
        leaves.append(mask)
    q, k, v = leaves[:3]
    for training in (True, False):
        torch.manual_seed(0)
        out = attend(q, k, v, site_of(unit, rescale), training=training, mask=mask)
        assert (out[0, :, 3] == 0).all()
        assert (out[1] == 0).all()
        assert out[0, :, 4].abs().sum() > 0 or rescale == "inverse"
        for grad in torch.autograd.grad(out.square().sum(), leaves):
            assert grad.isfinite().all()


@each_unit
@each_rescale
def test_a_row_of_the_least_number_alone_is_as_in_evaluation(unit: Unit, rescale: Rescale) -> None:
    """transformers hides padding with finfo.min; a row of nothing else attends to all keys alike, in both modes."""
    q, k, v = qkv()
    mask = torch.zeros(2, 1, TOKENS, TOKENS)
    mask[0, :, 3] = torch.finfo(torch.float32).min
    out = attend(q, k, v, site_of(unit, rescale), training=True, mask=mask)
    assert out.isfinite().all()
    if rescale == "renormalize":
        plain = attend(q, k, v, site_of(unit, rescale), training=False, mask=mask)
        torch.testing.assert_close(out[0, :, 3], plain[0, :, 3])


# Tiny, empty and extreme.


@each_unit
def test_one_key(unit: Unit) -> None:
    """It cannot go; with `inverse` it goes, or counts 1 / (1 − p)."""
    q, k, v = qkv(batch=50, keys=1)
    site = drop_site(unit, grid=(1, 1), ratio=0.5, window=3)
    expected = v.expand(-1, -1, TOKENS, -1)
    torch.testing.assert_close(attend(q, k, v, site, training=True), expected)
    site = drop_site(unit, grid=(1, 1), ratio=0.5, window=1, rescale="inverse")
    out = attend(q, k, v, site, training=True)
    gone = (out == 0).all(-1)
    torch.testing.assert_close(out[~gone], 2 * expected[~gone])
    assert 0.3 < gone.float().mean() < 0.7


@each_unit
@each_rescale
@pytest.mark.parametrize("window", [1, 2, 50])
@pytest.mark.parametrize("ratio", [1e-9, 0.5, 0.99, 0.999999999])
def test_extreme_ratios_and_windows_longer_than_the_sequence(
    unit: Unit, rescale: Rescale, window: int, ratio: float
) -> None:
    leaves = qkv()
    q, k, v = leaves
    site = site_of(unit, rescale, window=window, ratio=ratio)
    out = attend(q, k, v, site, training=True)
    for tensor in (out, *torch.autograd.grad(out.sum(), leaves)):
        assert tensor.isfinite().all()
    if rescale == "renormalize":
        weights = attend(q, k, torch.eye(TOKENS).expand(2, 2, -1, -1), site, training=True)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, TOKENS))
    if ratio < 1e-6:
        torch.testing.assert_close(out, attend(q, k, v, site, training=False))


@each_unit
@each_rescale
@each_mask
@pytest.mark.parametrize("training", [False, True])
def test_empty_batch(unit: Unit, rescale: Rescale, mask: str, training: bool) -> None:
    leaves = qkv(batch=0)
    q, k, v = leaves
    given = masks()[mask]
    given = given[:0] if given is not None and given.shape[0] == 2 else given
    out = attend(q, k, v, site_of(unit, rescale), training=training, mask=given, causal=True)
    assert out.shape == (0, 2, TOKENS, 4)
    assert [grad.shape for grad in torch.autograd.grad(out.sum(), leaves)] == [leaf.shape for leaf in leaves]


@each_unit
@each_rescale
def test_no_queries(unit: Unit, rescale: Rescale) -> None:
    q, k, v = qkv(queries=0)
    assert attend(q, k, v, site_of(unit, rescale), training=True).shape == (2, 2, 0, 4)


@pytest.mark.parametrize("unit", ["block", "cross"])
@each_rescale
def test_a_grid_smaller_than_the_block(unit: Unit, rescale: Rescale) -> None:
    """A 5 × 5 window on 2 × 3 keys: two rows high, and the prefix token is what is surely left."""
    q, k, v = qkv()
    site = site_of(unit, rescale, window=5, ratio=0.9)
    out = attend(q, k, torch.eye(TOKENS).expand(2, 2, -1, -1), site, training=True)
    assert (out[..., 0] > 0).all()
    assert (out[..., 1:] == 0).any()
    assert attend(q, k, v, site, training=True).isfinite().all()


# Precision.


@each_rescale
@each_mask
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float64, 1e-12)]
)
def test_other_precisions(rescale: Rescale, mask: str, columns: bool, dtype: torch.dtype, tolerance: float) -> None:
    """The same numbers as in float64, as far as the dtype goes; and the dtype comes out."""
    dropped = torch.rand(2, 2, 1 if columns else TOKENS, TOKENS, generator=torch.Generator().manual_seed(3)) < 0.5
    site = site_with(given_drop(dropped, rescale, ratio=0.5))
    leaves = qkv(dtype=dtype)
    q, k, v = leaves
    given = masks(dtype)[mask]
    out = attend(q, k, v, site, training=True, mask=given)
    assert out.dtype == dtype
    for grad in torch.autograd.grad(out.float().square().sum(), leaves):
        assert grad.dtype == dtype
        assert grad.isfinite().all()
    wide = given.double() if given is not None and given.is_floating_point() else given
    exact = attend(q.double(), k.double(), v.double(), site, training=True, mask=wide)
    torch.testing.assert_close(out.double(), exact, rtol=tolerance, atol=tolerance)


@each_unit
@each_rescale
@each_mask
def test_autocast(unit: Unit, rescale: Rescale, mask: str) -> None:
    """Mixed precision: parameters and masks in float32, attention in bfloat16, as in evaluation."""
    leaves = qkv()
    q, k, v = leaves
    site = site_of(unit, rescale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trained = attend(q, k, v, site, training=True, mask=masks()[mask], causal=True)
        evaluated = attend(q, k, v, site, training=False, mask=masks()[mask], causal=True)
    assert trained.dtype == evaluated.dtype == torch.bfloat16
    for grad in torch.autograd.grad(trained.float().sum(), leaves):
        assert grad.dtype == torch.float32
        assert grad.isfinite().all()


# NaN in, NaN out.


@each_unit
@each_rescale
@each_mask
@pytest.mark.parametrize("where", ["q", "k", "v", "mask"])
def test_nan_is_never_hidden(unit: Unit, rescale: Rescale, mask: str, where: str) -> None:
    """It reaches each output that the formula lets it reach, in evaluation and whatever is dropped.

    Numbers times 0 and sums with −inf are NaN where one of them is: neither padding nor dropping hides it.
    """
    q, k, v = (leaf.detach().clone() for leaf in qkv())
    given = masks()[mask]
    if where == "mask":
        if given is None or given.dtype == torch.bool:
            given = torch.zeros(2, 1, TOKENS, TOKENS)
        given = given.expand(2, 2, -1, -1).clone()
        given[0, 1, 2, 3] = math.nan
    else:
        {"q": q, "k": k, "v": v}[where][0, 1, 2, 3] = math.nan
    site = site_of(unit, rescale, window=1, ratio=0.8)
    added = torch.zeros(()) if given is None else given
    if added.dtype == torch.bool:
        added = torch.zeros(added.shape).masked_fill(~added, -math.inf)
    expected = ((q @ k.transpose(-2, -1) / 2 + added).softmax(-1) @ v).isnan()
    assert expected.any()
    assert torch.equal(attend(q, k, v, site, training=False, mask=given).isnan(), expected)
    for seed in range(5):
        torch.manual_seed(seed)
        assert torch.equal(attend(q, k, v, site, training=True, mask=given).isnan(), expected)
