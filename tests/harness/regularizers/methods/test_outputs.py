"""Compare regularizers of outputs with the papers' formulas in float64, by draws repeated from the same seed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.methods.outputs import DropDim, HiddenCut, StochasticDepth, TokenDropout
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods.reference import check, name_of

BATCH, TOKENS, WIDTH, RATIO = 5, 11, 8, 0.3
METHODS: dict[str, Regularizer] = {
    "stochastic-depth": StochasticDepth(ratio=RATIO),
    "hiddencut": HiddenCut(ratio=RATIO),
    "hiddencut-element": HiddenCut(ratio=RATIO, unit="element"),
    "dropdim": DropDim(ratio=RATIO),
    "dropdim-span": DropDim(ratio=RATIO, unit="span"),
    "token-dropout": TokenDropout(ratio=RATIO),
}


def site(regularizer: Regularizer, batch_axis: int = 0) -> Site:
    made = Site("block", "feed-forward", 0, 1, 2, batch_axis=batch_axis)
    regularizer.bind_to(made, SCHEDULES.get("constant"))
    return made


def reference(name: str, x: Tensor) -> Tensor:
    """Return the output for x (B, T, C), element by element, with the random numbers in the method's order."""
    factors = torch.ones(*x.shape, dtype=torch.float64)
    if name == "stochastic-depth":
        draws = torch.rand(BATCH, 1, 1)
        for b in range(BATCH):
            factors[b] = 0.0 if draws[b, 0, 0] < RATIO else 1 / (1 - RATIO)
    elif name == "hiddencut":
        draws, span = torch.rand(BATCH), int(TOKENS * RATIO)
        for b in range(BATCH):
            start = int(draws[b] * (TOKENS - span + 1))
            factors[b, start : start + span] = 0.0
    elif name == "hiddencut-element":
        draws = torch.rand(BATCH, TOKENS, WIDTH)
        for b, t, c in product(range(BATCH), range(TOKENS), range(WIDTH)):
            factors[b, t, c] = 0.0 if draws[b, t, c] < RATIO else 1 / (1 - RATIO)
    elif name == "dropdim":
        draws = torch.rand(BATCH, WIDTH)
        for b in range(BATCH):
            for c in range(WIDTH):
                factors[b, :, c] = 0.0 if draws[b, c] < RATIO else 1 / (1 - RATIO)
    elif name == "dropdim-span":
        draws, span = torch.rand(BATCH), int(WIDTH * RATIO)
        for b in range(BATCH):
            start = int(draws[b] * (WIDTH - span + 1))
            factors[b] = WIDTH / (WIDTH - span)
            factors[b, :, start : start + span] = 0.0
    else:
        samples, draws = torch.rand(BATCH, 1, 1), torch.rand(BATCH, TOKENS, 1)
        for b in range(BATCH):
            for t in range(TOKENS):
                if samples[b, 0, 0] >= 0.5 and draws[b, t, 0] < RATIO:
                    factors[b, t] = 0.0
    return x * factors


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_equal_the_formula(name: str, seed: int) -> None:
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    results = []
    for ours in (True, False):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(seed)
        out = METHODS[name].output(leaf, site(METHODS[name])) if ours else reference(name, leaf)
        out.backward(upstream)
        results.append((out, leaf.grad))
    for value, expected in zip(*results, strict=True):
        check(name_of(METHODS[name]), value, expected)
    assert not torch.equal(results[0][0], x)


@pytest.mark.parametrize("name", ["stochastic-depth", "hiddencut", "dropdim", "dropdim-span"])
def test_the_sequence_may_be_the_first_axis(name: str) -> None:
    x = torch.randn(BATCH, TOKENS, WIDTH)
    outs = []
    for axis in (0, 1):
        torch.manual_seed(0)
        given = x if axis == 0 else x.transpose(0, 1)
        out = METHODS[name].output(given, site(METHODS[name], axis))
        outs.append(out if axis == 0 else out.transpose(0, 1))
    assert torch.equal(*outs)


@pytest.mark.parametrize("name", ["stochastic-depth", "hiddencut", "dropdim"])
def test_tokens_may_form_a_grid(name: str) -> None:
    x = torch.randn(BATCH, 3, 4, WIDTH)
    torch.manual_seed(0)
    out = METHODS[name].output(x, site(METHODS[name]))
    torch.manual_seed(0)
    assert torch.equal(out.flatten(1, 2), METHODS[name].output(x.flatten(1, 2), site(METHODS[name])))


@pytest.mark.parametrize(
    "spec", [("dropdim", {"unit": "block"}), ("token-dropout", {"unchanged": 1.0}), ("hiddencut", {"ratio": 1.0})]
)
def test_impossible_values_are_errors(spec: tuple[str, dict[str, Any]]) -> None:
    with pytest.raises(InputError):
        build_regularizer(spec[0], **spec[1])
