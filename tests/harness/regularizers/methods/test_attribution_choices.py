"""Test HeadMask by importance and AttendOut against slow references in float64: choices, loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.methods.attribution import AttendOut, HeadMaskImportant
from dropbench.harness.regularizers.methods.weight_modules import DropGenerator
from dropbench.harness.regularizers.passes import loss_of_passes
from dropbench.harness.regularizers.schedules import constant
from tests.harness.regularizers.methods.reference import check
from tests.harness.regularizers.one_layer import (
    BATCH,
    HEADS,
    TOKENS,
    OneLayer,
    make,
    passes_of,
    plain_weights,
)  # fmt: skip

ONES = torch.ones(BATCH, HEADS, dtype=torch.float64)


def loss_with(model: OneLayer, x: Tensor, labels: Tensor, weights: Tensor, factors: Tensor) -> Tensor:
    """Return the loss with given attention weights, and factors (B, H) of the heads' outputs."""
    out = weights @ model.split(x)[2] * factors[..., None, None]
    return cross_entropy(model.head(out.transpose(1, 2).flatten(2).mean(1)), labels)


def compare(name: str, model: OneLayer, loss: Tensor, expected: Tensor) -> None:
    check(name, loss, expected)
    parameters = [parameter for part in (model.qkv, model.head) for parameter in part.parameters()]
    pairs = zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True)
    for own, other in pairs:
        check(name, own, other)


@pytest.mark.parametrize("draw", ["batch", "sample"])
def test_the_heads_with_the_largest_gradients_of_their_factors_are_masked(draw: Any) -> None:
    regularizer = HeadMaskImportant(heads=1, draw=draw)
    model, x, labels = make(regularizer)
    loss = loss_of_passes(regularizer, passes_of(model, x, labels), None)
    weights, factors = plain_weights(model, x), ONES.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(loss_with(model, x, labels, weights, factors), factors, retain_graph=True)
    importance: list[list[float]] = slopes.abs().tolist()
    kept = ONES.clone()
    for b in range(BATCH):
        rows = importance if draw == "batch" else importance[b : b + 1]
        scores = [sum(row[h] for row in rows) for h in range(HEADS)]
        kept[b, max(range(HEADS), key=scores.__getitem__)] = 0.0
    compare("headmask-important", model, loss, loss_with(model, x, labels, weights, kept))
    assert not regularizer._importance
    with torch.no_grad():  # outside of a step, nothing is masked
        assert torch.allclose(model(x), model.eval()(x))


def test_the_number_of_important_heads_follows_schedules() -> None:
    site = Site("attention", "encoder-self", 0, 1, 4)
    regularizer = HeadMaskImportant(heads=3)
    regularizer.bind_to(site, constant)
    regularizer._importance[site] = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    assert regularizer.keep_heads(1, 4, site).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    site.ratio = 1.0
    assert regularizer.keep_heads(2, 4, site).tolist() == [[1.0, 0.0, 1.0, 1.0]] * 2


def generator_of(model: OneLayer, values: list[float]) -> DropGenerator:
    assert isinstance(model.own, DropGenerator)
    with torch.no_grad():
        model.own.weight.copy_(torch.tensor(values))
    return model.own


def slow_probabilities(model: OneLayer, weights: Tensor, ratio: float) -> tuple[list[tuple[int, ...]], Tensor]:
    """Return the keys (b, h, t, s) that may be dropped, and their probabilities, one at a time."""
    assert isinstance(model.own, DropGenerator)
    keys: list[tuple[int, ...]] = []
    probabilities = []
    for b in range(BATCH):
        allowed = [s for s in range(TOKENS) if bool(model.mask[b, 0, 0, s])]
        for h in range(HEADS):
            for t in range(TOKENS):
                top = max(float(weights[b, h, t, s]) for s in allowed)
                powers = [(model.own.weight[h] * (float(weights[b, h, t, s]) / top)).exp() for s in allowed]
                total = torch.stack(powers).sum()
                for s, power in zip(allowed, powers, strict=True):
                    keys.append((b, h, t, s))
                    probabilities.append((ratio * len(allowed) * power / total).clamp_max(0.95))
    return keys, torch.stack(probabilities)


def test_attendout_is_that_of_a_slow_reference() -> None:
    ratio = 0.4
    regularizer = AttendOut(ratio=ratio)
    model, x, labels = make(regularizer)
    generator = generator_of(model, [2.0, -3.0])
    torch.manual_seed(3)
    loss = loss_of_passes(regularizer, passes_of(model, x, labels), None)
    weights = plain_weights(model, x)
    keys, probabilities = slow_probabilities(model, weights.detach(), ratio)
    torch.manual_seed(3)
    noise = torch.rand(BATCH, HEADS, TOKENS, TOKENS, dtype=torch.float64)
    kept, log_probs = torch.ones(noise.shape, dtype=torch.bool), []
    for key, probability in zip(keys, probabilities, strict=True):
        kept[key] = float(noise[key]) >= probability.item()
        log_probs.append((1 - probability if kept[key] else probability).log())
    remaining = kept & model.mask
    remaining |= ~remaining.any(-1, keepdim=True) & model.mask
    dropped = weights * remaining / (weights * remaining).sum(-1, keepdim=True)
    expected = loss_with(model, x, labels, dropped, ONES)
    reward = float((loss_with(model, x, labels, weights, ONES) - expected).detach())
    (own,) = torch.autograd.grad(loss, [generator.weight], retain_graph=True)
    (policy,) = torch.autograd.grad(-reward * torch.stack(log_probs).sum(), [generator.weight])
    check("attendout", own, policy)
    assert own.abs().max() > 1e-4
    compare("attendout", model, loss, expected)


def test_attendout_learns_and_stores_nothing_outside_of_steps() -> None:
    regularizer = AttendOut()
    model, x, _ = make(regularizer)
    model(x).sum().backward()
    assert isinstance(model.own, DropGenerator)
    assert model.own.weight.grad is None
    assert not regularizer._log_probs
    assert regularizer.skip(Site("a", "cross", 0, 1, 2, width=4)) == "it does not regularize cross sites"
    assert regularizer.skip(Site("a", "encoder-self", 0, 1, 2)) == "its width is unknown"
