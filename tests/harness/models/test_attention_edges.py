"""Edge cases: fully dropped rows, tiny and empty shapes, half precision, NaN."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from tests.covering import each_pair
from tests.harness.given import TOKENS, given_drop, masks, qkv, site_of, site_with

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
each_unit = pytest.mark.parametrize("unit", UNITS)
each_rescale = pytest.mark.parametrize("rescale", RESCALES)
each_mask = pytest.mark.parametrize("mask", list(masks()))


# Fully dropped rows.


@pytest.mark.parametrize("padding", [torch.finfo(torch.float32).min, -math.inf, -1e9, -1e4, -100.0])
def test_only_padding_is_kept(padding: float) -> None:
    """If all keys that a row may attend to are dropped and only padding is kept, the padding still gets no weight."""
    q, k, v = qkv()
    additive = torch.zeros(2, 1, 1, TOKENS)
    additive[..., -2:] = padding
    dropped = (torch.arange(TOKENS) < TOKENS - 2).expand(2, 2, TOKENS, TOKENS)
    for mask in (additive, additive == 0):
        out = attend(q, k, v, site_with(given_drop(dropped, "renormalize")), training=True, mask=mask)
        expected = scaled_dot_product_attention(q, k[:, :, :-2], v[:, :, :-2]) if padding > -200 else None
        expected = expected if expected is not None else scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)


@each_pair(unit=UNITS, rescale=RESCALES, kind=["boolean", "-inf"])
def test_a_fully_masked_row_gives_0_and_finite_gradients(unit: Unit, rescale: Rescale, kind: str) -> None:
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


# Tiny, empty and extreme.


@each_pair(unit=UNITS, rescale=RESCALES, window=[1, 2, 50], ratio=[1e-9, 0.5, 0.99, 0.999999999])
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


@each_pair(unit=UNITS, rescale=RESCALES, mask=[*masks()], training=[False, True])
def test_empty_batch(unit: Unit, rescale: Rescale, mask: str, training: bool) -> None:
    leaves = qkv(batch=0)
    q, k, v = leaves
    attention_mask = masks()[mask]
    if attention_mask is not None and attention_mask.shape[0] == 2:
        attention_mask = attention_mask[:0]
    out = attend(q, k, v, site_of(unit, rescale), training=training, mask=attention_mask, causal=True)
    assert out.shape == (0, 2, TOKENS, 4)
    assert [grad.shape for grad in torch.autograd.grad(out.sum(), leaves)] == [leaf.shape for leaf in leaves]


# Precision.


@each_pair(unit=UNITS, rescale=RESCALES, mask=[*masks()])
def test_autocast(unit: Unit, rescale: Rescale, mask: str) -> None:
    """Mixed precision: parameters and masks are float32, attention is bfloat16, as in evaluation."""
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


@each_pair(unit=UNITS, rescale=RESCALES, mask=[*masks()], where=["q", "k", "v", "mask"])
def test_nan_propagates(unit: Unit, rescale: Rescale, mask: str, where: str) -> None:
    """A NaN reaches each output that depends on it, in evaluation and independently of what is dropped.

    NaN times 0 and NaN plus −inf are NaN: neither padding nor dropping removes it.
    """
    q, k, v = (leaf.detach().clone() for leaf in qkv())
    attention_mask = masks()[mask]
    if where == "mask":
        if attention_mask is None or attention_mask.dtype == torch.bool:
            attention_mask = torch.zeros(2, 1, TOKENS, TOKENS)
        attention_mask = attention_mask.expand(2, 2, -1, -1).clone()
        attention_mask[0, 1, 2, 3] = math.nan
    else:
        {"q": q, "k": k, "v": v}[where][0, 1, 2, 3] = math.nan
    site = site_of(unit, rescale, window=1, ratio=0.8)
    added = torch.zeros(()) if attention_mask is None else attention_mask
    if added.dtype == torch.bool:
        added = torch.zeros(added.shape).masked_fill(~added, -math.inf)
    expected = ((q @ k.transpose(-2, -1) / 2 + added).softmax(-1) @ v).isnan()
    assert expected.any()
    assert torch.equal(attend(q, k, v, site, training=False, mask=attention_mask).isnan(), expected)
    for seed in range(5):
        torch.manual_seed(seed)
        assert torch.equal(attend(q, k, v, site, training=True, mask=attention_mask).isnan(), expected)
