"""Test LayerDrop: which layers it skips, and that a skipped layer costs no random number."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dropbench.harness.models.regularize import bind
from tests.harness.regularizers.methods.reference import check


class Layer(nn.Module):
    """A layer that returns more than its hidden states, and draws random numbers."""

    def __init__(self, extra: Tensor | None) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.out, self.extra, self.runs = nn.Linear(4, 4), extra, 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        self.runs += 1
        torch.rand(3)
        return x + self.out(self.attention(x, x, x)[0]), self.extra


class Model(nn.Module):
    """Two such layers, as in LayerDrop's experiments with residual connections."""

    def __init__(self, extra: Tensor | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(extra), Layer(extra)])
        self.extras: list[Tensor | None] = []

    def forward(self, x: Tensor) -> Tensor:
        self.extras = []
        for layer in self.layers:
            x, extra = layer(x)
            self.extras.append(extra)
        return x


def test_values_and_gradients_are_those_of_the_kept_layers() -> None:
    torch.manual_seed(0)
    model, x = Model().double(), torch.randn(2, 3, 4).double()
    plain = copy.deepcopy(model)
    bind(model, "layerdrop", ratio=0.5)
    upstream, seen = torch.randn(2, 3, 4).double(), set()
    for seed in range(8):
        for each in (model, plain):
            each.zero_grad()
        torch.manual_seed(seed)
        out = model(x)
        torch.manual_seed(seed)
        expected, kept = x, []
        for layer in plain.layers:
            kept.append(float(torch.rand(())) >= 0.5)
            if kept[-1]:
                expected = layer(expected)[0]
        seen.add(tuple(kept))
        check("layerdrop", out, expected)
        if any(kept):
            out.backward(upstream)
            expected.backward(upstream)
        for own, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert (own.grad is None) == (other.grad is None)
            if own.grad is not None:
                check("layerdrop", own.grad, other.grad)
    assert len(seen) == 4


def test_a_skipped_layer_does_not_run_again_and_changes_no_random_number() -> None:
    model, x = Model(), torch.randn(2, 3, 4)
    bind(model, "layerdrop", ratio=0.999)
    states = []
    for _ in range(2):  # the first call runs each layer to find out what it returns
        torch.manual_seed(0)
        model(x)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
    assert [layer.runs for layer in model.layers] == [1, 1]


def test_a_tensor_that_later_layers_may_need_is_always_there() -> None:
    extra = torch.ones(())
    model = Model(extra)
    bind(model, "layerdrop", ratio=0.999)
    x = torch.randn(2, 3, 4)
    for _ in range(2):
        assert torch.equal(model(x), x)
        assert all(value is extra for value in model.extras)


class Widening(nn.Module):
    """A layer that attends in each branch and changes its width."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(before, 2, batch_first=True)
        self.out, self.runs = nn.Linear(before, after), 0

    def forward(self, branches: list[Tensor]) -> list[Tensor]:
        self.runs += 1
        return [self.out(x + self.attention(x, x, x)[0]) for x in branches]


def test_layers_that_change_shapes_are_never_skipped() -> None:
    model = nn.Sequential(Widening(4, 4), Widening(4, 8), Widening(8, 8)).train()
    bind(model, "layerdrop", ratio=0.99)
    for seed in range(5):
        torch.manual_seed(seed)
        assert [out.shape for out in model([torch.ones(2, 3, 4), torch.ones(2, 5, 4)])] == [(2, 3, 8), (2, 5, 8)]
    assert [layer.runs for layer in model] == [1, 5, 1]  # the others once, to find out
