"""Test intercepted calls of attention in modules of one's own: which are replaced, and which are not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from dropbench import Site, regularize
from dropbench.harness.errors import UnsuitableError
from dropbench.harness.models.attention import attend_weights
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.reach import PASSES
from dropbench.harness.regularizers.drop import grid_of_keys
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import build_regularizer

drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)
X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


class EightLines(nn.Module):
    """A module as users write it: only its code shows that it attends."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.scale = nn.Linear(8, 24), 0.5

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = nn.functional.dropout((self.scale * q @ k.transpose(-2, -1)).softmax(-1), 0.9, self.training)
        attended: Tensor = weights @ v
        return attended


def test_attention_in_a_module_of_ones_own_is_regularized_and_its_dropout_replaced() -> None:
    module, x = EightLines().eval(), torch.randn(2, 5, 8)
    plain = module(x)
    bind(module, "no-attention-dropout")
    torch.testing.assert_close(module.train()(x), plain)
    report = bind(module, "dropkey", ratio=0.5)
    assert [(site.name, site.kind) for site in report.bound] == [("", "encoder-self")]
    assert not torch.allclose(module(x), plain)
    assert torch.equal(module.eval()(x), plain)
    with pytest.raises(UnsuitableError, match="ValueDropout needs values, and the module computes a softmax"):
        bind(module, "value-dropout")


def test_a_grid_fits_the_keys_of_a_call() -> None:
    site = Site("", "encoder-self", 0, 1, 2, (4, 6), 1)
    assert [grid_of_keys(site, keys) for keys in (25, 10, 12)] == [(4, 6), (3, 3), (4, 6)]


def test_sites_that_do_not_attend_in_training_are_named_once() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = EightLines(), EightLines()

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    model = Towers().train()
    drop(model)
    for _ in range(PASSES - 1):
        model(X)
    with pytest.warns(UserWarning, match="1 of 2 regularized sites have not attended in 50 training passes: idle:"):
        model(X)
    for _ in range(PASSES):
        model(X)
    drop(model, unreached="ignore")
    for _ in range(PASSES):
        model(X)


def test_attention_that_nothing_can_intercept_is_named() -> None:
    class Kernel(EightLines):
        fast = True

        def forward(self, x: Tensor) -> Tensor:
            return x if self.fast else super().forward(x) + x.softmax(-1) @ x.mT @ x

    module = Kernel().train()
    drop(module)
    for _ in range(PASSES - 1):
        module(X)
    with pytest.warns(UserWarning, match="1 of 1 regularized sites have not attended"):
        module(X)


@pytest.mark.slow
def test_a_subclass_of_multi_head_attention_is_regularized_whole_in_a_graph() -> None:
    class Own(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, x, x, need_weights=False)[0]

    module = Own(8, 2, batch_first=True)
    plain = module(X)
    bind(module, "no-attention-dropout")
    torch.testing.assert_close(module(X), plain)
    drop(module)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.manual_seed(0)
    dropped = module(X)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(X), dropped)
    assert not torch.allclose(dropped, plain)


@pytest.mark.parametrize("rescale", ["renormalize", "inverse", "detached"])
@pytest.mark.parametrize("unit", ["element", "column"])
def test_weights_alone_are_those_that_attend(rescale: str, unit: str) -> None:
    logits = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 1, 4, 6) > 0.3
    mask[0, 0, 0] = False
    site = Site("", "encoder-self", 0, 1, 3, weights_only=True)
    built = build_regularizer("dropattention-c", ratio=0.4, rescale=rescale, unit=unit)
    built.bind_to(site, SCHEDULES.get("constant"))
    results = []
    for probe in (None, lambda *_: None):  # with a probe, they are the output for unit vectors
        site.probe = probe
        torch.manual_seed(0)
        weights = attend_weights(logits.masked_fill(~mask, -1e9), mask.expand(2, 3, 4, 6), site, training=True)
        (gradient,) = torch.autograd.grad(weights.square().sum(), logits)
        results.append((weights, gradient))
    torch.testing.assert_close(*results)
    assert (results[0][0] == 0).sum() > (~mask).sum() * 3


class Around(nn.Module):
    """Attends, and has a module that attends."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = EightLines()

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return x + nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("wrap", [lambda module: module, partial(torch.compile, backend="aot_eager", fullgraph=True)])
def test_a_module_around_another_has_calls_of_its_own(wrap: Any) -> None:
    model = Around().train()
    report = bind(model, "dropkey", ratio=0.5)
    assert [site.name for site in report.bound] == ["", "inner"]
    recorded: list[str] = []
    with watch(model, lambda site, _: recorded.append(site.name)):
        model(X)
    assert recorded == ["inner", ""]
    bind(model, "no-attention-dropout")
    assert torch.equal(wrap(model)(X), wrap(model)(X))


@pytest.mark.parametrize("softmax", [partial(torch.softmax, dim=-1), lambda x: torch.softmax(x, 2, torch.float64)])
def test_dropout_of_an_output_is_not_that_of_weights(softmax: Any) -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.seen = nn.functional.dropout(softmax(x @ x.mT), 0.5, self.training)
            return nn.functional.dropout((self.seen.to(x.dtype) @ x), 0.5, self.training)

    model, x = Square().train(), torch.randn(2, 8, 8)
    bind(model, "no-attention-dropout")
    assert (model(x) == 0).any()
    torch.testing.assert_close(model.seen, softmax(x @ x.mT))


def test_attention_of_a_regularizer_is_no_site() -> None:
    model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16))
    before = [site.name for site in bind(model, "disagreement").bound]
    bind(model, "learned-dropout", where="attention")
    assert [site.name for site in bind(model, "disagreement").bound] == before
