"""Test AD-DROP against a slow reference in float64: attributions, regions, loss and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.methods.attribution import ADDrop, high_region
from dropbench.harness.regularizers.methods.tokens import floor_share
from dropbench.harness.regularizers.passes import Passes
from dropbench.harness.regularizers.schedules import constant
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods.reference import check
from tests.harness.regularizers.one_layer import (
    BATCH,
    HEADS,
    SIZE,
    TOKENS,
    OneLayer,
    make,
    passes_of,
    plain_weights,
)  # fmt: skip

CERTAIN = 1 - 1e-12


def slow_regions(model: OneLayer, x: Tensor, share: float) -> Tensor:
    """Find the regions with Python's floats: ∂F/∂A[b, h, t, s] = Σ_e v[b, h, s, e] · W[c, h·e] / T."""
    values: list[Any] = model.split(x)[2].tolist()
    weight: list[list[float]] = model.head.weight.tolist()
    predicted: list[int] = model.eval()(x).argmax(-1).tolist()
    model.train()
    regions = torch.zeros(BATCH, HEADS, TOKENS, TOKENS, dtype=torch.bool)
    for b in range(BATCH):
        keys = [s for s in range(TOKENS) if bool(model.mask[b, 0, 0, s])]
        for h in range(HEADS):
            row = weight[predicted[b]][h * SIZE : (h + 1) * SIZE]
            attribution = {s: math.fsum(a * c for a, c in zip(values[b][h][s], row, strict=True)) for s in keys}
            ascending = sorted(keys, key=attribution.__getitem__)
            for s in ascending[int((1 - share) * len(keys)) :]:
                regions[b, h, :, s] = True
    return regions


@pytest.mark.parametrize("share", [0.3, 0.55])
def test_loss_and_gradients_are_those_of_a_slow_reference(share: float) -> None:
    regularizer = ADDrop(ratio=CERTAIN, region=share)
    model, x, labels = make(regularizer)
    passes = passes_of(model, x, labels)
    regularizer.prepare(passes)
    regions = slow_regions(model, x, share)
    assert torch.equal(regularizer._regions[model.site], regions)
    loss, _ = passes.run(x)
    q, k, v = model.split(x)
    powers = (q @ k.mT / math.sqrt(SIZE)).exp() * (model.mask & ~regions)
    out = (powers / powers.sum(-1, keepdim=True)) @ v
    expected = cross_entropy(model.head(out.transpose(1, 2).flatten(2).mean(1)), labels)
    check("ad-drop", loss, expected)
    parameters = list(model.parameters())
    for own, reference in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        check("ad-drop", own, reference)
    regularizer.objective(passes)
    assert not regularizer._regions


def test_a_key_of_the_region_is_dropped_with_the_ratio_in_each_pass_anew() -> None:
    regularizer = ADDrop(ratio=0.3, region=0.5)
    model, x, labels = make(regularizer)
    passes = passes_of(model, x, labels)
    regularizer.prepare(passes)
    region, copies = regularizer._regions[model.site], 400
    unit = torch.eye(TOKENS, dtype=torch.float64).expand(BATCH * copies, HEADS, -1, -1)
    q, k, _ = (part.repeat(copies, 1, 1, 1) for part in model.split(x))
    torch.manual_seed(0)
    weights = attend(q, k, unit, model.site, training=True, mask=model.mask.repeat(copies, 1, 1, 1))
    dropped = (weights == 0).view(copies, *region.shape) & model.mask
    assert not (dropped & ~region).any()
    number = copies * int(region.sum())
    assert abs(int(dropped.sum()) - 0.3 * number) < 5 * math.sqrt(number * 0.3 * 0.7)
    assert not torch.equal(dropped[0], dropped[1])


def test_even_epochs_are_plain_unless_they_do_not_alternate() -> None:
    for alternate, epoch, drops in ((True, 0, False), (True, 1, True), (True, 2, False), (False, 0, True)):
        regularizer = ADDrop(ratio=CERTAIN, alternate=alternate)
        model, x, labels = make(regularizer)
        passes = passes_of(model, x, labels, epoch)
        regularizer.prepare(passes)
        plain = model.eval()(x)
        assert torch.allclose(model.train()(x), plain) is not drops


class TwoLayers(OneLayer):
    """Attention, tanh, and attention with the same weights, so that predictions are no linear function of them."""

    def __init__(self, regularizer: ADDrop, lengths: list[int]) -> None:
        super().__init__(regularizer, lengths)
        self.second = Site("second", "encoder-self", 0, 1, HEADS)
        regularizer.bind_to(self.second, constant)

    def forward(self, x: Tensor) -> Tensor:
        for site in (self.site, self.second):
            out = attend(*self.split(x), site, training=self.training, mask=self.mask)
            x = out.transpose(1, 2).flatten(2).tanh()
        logits: Tensor = self.head(x.mean(1))
        return logits


def predict(model: TwoLayers, x: Tensor, layer: int, factor: float) -> tuple[Tensor, Tensor]:
    """Return the logits with the weights of a layer multiplied by a factor, and these weights."""
    chosen = x
    for number in range(2):
        weights = plain_weights(model, x) * (factor if number == layer else 1.0)
        chosen = weights if number == layer else chosen
        x = (weights @ model.split(x)[2]).transpose(1, 2).flatten(2).tanh()
    logits: Tensor = model.head(x.mean(1))
    return logits, chosen


def slow_integral(model: TwoLayers, x: Tensor, layer: int, steps: int) -> Tensor:
    """Return A ⊙ Σ_k ∂F(k/m · A)/∂A / m of a layer, with the predicted class of each sample."""
    logits, whole = predict(model, x, layer, 1.0)
    predicted: list[int] = logits.argmax(-1).tolist()
    total = torch.zeros_like(whole)
    for step in range(1, steps + 1):
        logits, weights = predict(model, x, layer, step / steps)
        own = torch.stack([logits[b, c] for b, c in enumerate(predicted)]).sum()
        total += torch.autograd.grad(own, weights)[0]
    return (whole * total / steps).detach()


def test_integrated_gradients_are_those_of_a_slow_reference() -> None:
    steps, number = 5, 0
    regularizer = ADDrop(region=0.4, integral_steps=steps)
    torch.manual_seed(0)
    model = TwoLayers(regularizer, [TOKENS, 7, 4]).double()
    x = torch.randn(BATCH, TOKENS, HEADS * SIZE, dtype=torch.float64)

    def forward(batch: Any) -> tuple[Tensor, Tensor]:
        nonlocal number
        number += 1
        logits = model(batch)
        return logits.sum(), logits

    passes = Passes(forward, x, [model.site, model.second], 0.0, 1)
    regularizer.prepare(passes)
    assert number == 1 + 2 * steps
    different = []
    for layer, site in enumerate((model.site, model.second)):
        logits, unscaled = predict(model, x, layer, 1.0)
        attributions = slow_integral(model, x, layer, steps)
        own = regularizer._integral(passes, site, unscaled, logits.argmax(-1, keepdim=True))
        check("ad-drop", own, attributions)
        region = high_region(attributions, model.mask, 0.4)
        assert torch.equal(regularizer._regions[site], region)
        different.append(not torch.equal(region, high_region(slow_integral(model, x, layer, 1), model.mask, 0.4)))
    assert any(different)


def test_rows_with_tokens_left_out_since_are_plain() -> None:
    regularizer = ADDrop(ratio=CERTAIN)
    model, x, labels = make(regularizer)
    regularizer.prepare(passes_of(model, x, labels))
    q, k, v = (part[..., :4, :] for part in model.split(x))
    plain = attend(q, k, v, model.site, training=False)
    torch.testing.assert_close(attend(q, k, v, model.site, training=True), plain)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_regions_equal_those_by_sorting_all_keys(masked: bool, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    attributions = torch.randn(2, 3, 40, 50, generator=generator).round(decimals=1)  # so that some are equal
    allowed = torch.rand(2, 1, 40, 50, generator=generator) < torch.rand(2, 1, 40, 1, generator=generator)
    found = high_region(attributions, allowed if masked else None, share)
    allowed = allowed.expand_as(attributions) if masked else torch.ones_like(found)
    for row, keys, own in zip(attributions.flatten(0, 2), allowed.flatten(0, 2), found.flatten(0, 2), strict=True):
        ascending = row[keys].sort().values
        if len(ascending):
            assert torch.equal(own, keys & (row >= ascending[floor_share(1 - share, len(ascending))]))
        else:
            assert not own.any()


def test_the_size_of_a_region_is_that_of_the_decimal_share() -> None:
    attributions = torch.arange(100.0).expand(1, 1, 1, 100)
    assert int(high_region(attributions, None, 0.41).sum()) == 41  # in float32, (1 - 0.41) * 100 is below 59


@pytest.mark.parametrize("name", ["ad-drop+drophead", "attendout+headmask-important"])
def test_parts_that_leave_heads_out_are_refused(name: str) -> None:
    own, other = name.split("+")
    with pytest.raises(InputError, match=f"{own} needs all heads: set {other}.draw=sample"):
        build_regularizer(name)
    assert not build_regularizer(name, **{f"{other}.draw": "sample"}).draws_per_batch
