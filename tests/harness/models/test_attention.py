"""`attend`: equality with SDPA, masks, and invalid arguments."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dropbench.harness.attention.reference.sdpa import (
    additive,
    allowed_keys,
    attention_weights,
    masked_softmax,
    with_causal,
)
from dropbench.harness.attention.reference.units import Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from tests.covering import each_pair
from tests.harness.given import drop_site, given_drop, site_with

UNITS: tuple[Unit, ...] = get_args(Unit)
LENGTHS = [(5, 5), (3, 7), (7, 3), (1, 6), (6, 1)]


def qkv(queries: int, keys: int, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, tokens, 4, dtype=dtype) for tokens in (queries, keys, keys))
    return q, k, v


@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_causal_equals_sdpa_if_queries_and_keys_differ_in_number(queries: int, keys: int) -> None:
    """SDPA aligns at the upper left, and so do the joined mask of training and the weights of probes."""
    q, k, v = qkv(queries, keys)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True)
    site = site_with(given_drop(torch.zeros(1, 1, 1, keys, dtype=torch.bool), "renormalize"))
    for out in (
        attend(q, k, v, site, training=False, causal=True),
        attend(q, k, v, site, training=True, causal=True),
        attention_weights(q, k, causal=True) @ v,
        scaled_dot_product_attention(q, k, v, attn_mask=with_causal(None, queries, keys, q.device)),
    ):
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@each_pair(
    kind=[torch.bool, torch.float64],
    shape=[(2, 3, 5, 5), (2, 1, 1, 5), (1, 3, 5, 5), (5, 5)],
    training=[False, True],
    causal=[False, True],
)
def test_masks_of_every_shape(kind: torch.dtype, shape: tuple[int, ...], training: bool, causal: bool) -> None:
    """If nothing is dropped, attention equals SDPA with the expanded mask, in training and in evaluation."""
    q, k, v = qkv(5, 5)
    mask = torch.rand(shape) < 0.7 if kind == torch.bool else torch.randn(shape, dtype=kind)
    full = mask.expand(2, 3, 5, 5)
    if causal:
        lower = torch.ones(5, 5, dtype=torch.bool).tril()
        full = full & lower if kind == torch.bool else full.masked_fill(~lower, float("-inf"))
    for rescale in ("renormalize", "inverse"):
        drop = given_drop(torch.zeros(2, 3, 5, 5, dtype=torch.bool), rescale, ratio=1e-300)
        out = attend(q, k, v, site_with(drop), training=training, mask=mask, causal=causal)
        torch.testing.assert_close(out, scaled_dot_product_attention(q, k, v, attn_mask=full), rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_scale(training: bool) -> None:
    q, k, v = qkv(4, 6)
    for rescale in ("renormalize", "inverse"):
        site = site_with(given_drop(torch.zeros(1, 1, 1, 6, dtype=torch.bool), rescale, ratio=1e-300))
        out = attend(q, k, v, site, training=training, scale=0.7)
        torch.testing.assert_close(out, scaled_dot_product_attention(q, k, v, scale=0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 5, 4), (3, 5, 4), (3, 5, 4)), r"attention 'attention': expected q, k, v of shape \(batch, heads, tokens"),
        (((1, 3, 5, 4), (3, 5, 4), (1, 3, 5, 4)), r"got \(1, 3, 5, 4\), \(3, 5, 4\), \(1, 3, 5, 4\)"),
        (((1, 1, 3, 5, 4),) * 3, "expected q, k, v of shape"),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_other_numbers_of_axes_are_rejected(shapes: tuple[Any, Any, Any], message: str, training: bool) -> None:
    q, k, v = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        attend(q, k, v, drop_site("element"), training=training)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_integer_masks_are_rejected(dtype: torch.dtype) -> None:
    """A mask of 0 and 1 would be added to the logits, and mask nothing."""
    q, k, v = qkv(5, 5)
    with pytest.raises(ValueError, match=f"expected a boolean or floating mask, got {dtype}"):
        attend(q, k, v, drop_site("element"), training=True, mask=torch.ones(5, 5, dtype=dtype))


def test_a_grid_that_does_not_match_the_keys_is_rejected() -> None:
    """The model was regularized at one image size and runs at another."""
    q, k, v = qkv(9, 9)
    with pytest.raises(ValueError, match="unit 'block' needs the grid of the 9 keys, got grid \\(4, 4\\) and prefix 1"):
        attend(q, k, v, drop_site("block", window=2, grid=(4, 4), prefix=1), training=True)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("training", [False, True])
def test_a_probe_gets_the_unregularized_weights(unit: Unit, training: bool) -> None:
    q, k, v = qkv(6, 6)
    site = drop_site(unit, grid=(2, 3))
    calls: list[tuple[Site, Tensor]] = []
    site.probe = lambda probed, weights: calls.append((probed, weights))
    mask = torch.rand(2, 1, 1, 6) < 0.7
    attend(q.requires_grad_(), k, v, site, training=training, mask=mask, causal=True)
    [(probed, weights)] = calls
    assert probed is site
    assert not weights.requires_grad
    unit_values = torch.eye(6, dtype=q.dtype).expand(2, 3, -1, -1)
    expected = attend(q, k, unit_values, site_with(None), training=False, mask=mask, causal=True)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)


def test_weights_of_a_fully_masked_row_are_0() -> None:
    q, k, _ = qkv(2, 3)
    q.requires_grad_()
    weights = attention_weights(q, k, mask=torch.tensor([[True, True, False], [False, False, False]]))
    assert (weights[..., 1, :] == 0).all()
    torch.testing.assert_close(weights[..., 0, :].sum(-1), torch.ones(2, 3, dtype=torch.float64))
    weights.square().sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_masked_softmax_keeps_a_nan() -> None:
    logits = torch.tensor([[float("nan"), float("-inf")], [float("-inf"), float("-inf")], [0.0, float("-inf")]])
    weights = masked_softmax(logits)
    assert weights[0].isnan().all()
    assert weights[1:].tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_additive_and_allowed_keys_are_inverse() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        kept = torch.tensor([[True, False, True], [False, False, False]])
        added = additive(kept, dtype)
        assert added.dtype == dtype
        assert added.tolist() == [[0.0, float("-inf"), 0.0], [float("-inf")] * 3]
        assert torch.equal(allowed_keys(added), kept)
        assert torch.equal(allowed_keys(kept), kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_allowed_keys_of_libraries_masks(dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min
    bias = torch.tensor([3.0, -5.0, 0.0, -20.0], dtype=dtype)
    assert allowed_keys(bias).all()
    for value in (float("-inf"), lowest, -1e4, -100.0):
        masked = bias + torch.tensor([0.0, value, 0.0, 0.0]).to(dtype)
        assert allowed_keys(masked).tolist() == [True, False, True, True]
    assert not allowed_keys(torch.full((4,), lowest, dtype=dtype)).any()
    assert not allowed_keys(torch.full((4,), float("-inf"), dtype=dtype)).any()
    assert not allowed_keys((bias + lowest).clamp(min=lowest)).any()  # T5 adds a bias to the lowest number
