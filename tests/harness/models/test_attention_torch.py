"""Attention under torch's features: views, graphs, compilation, activation checkpointing, export."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from tests.covering import each_pair
from tests.harness.given import TOKENS, drop_site, masks, qkv, site_of

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
each_unit = pytest.mark.parametrize("unit", UNITS)
each_rescale = pytest.mark.parametrize("rescale", RESCALES)


@each_pair(unit=UNITS, rescale=RESCALES, mask=[*masks()])
def test_views_equal_contiguous_tensors(unit: Unit, rescale: Rescale, mask: str) -> None:
    site = site_of(unit, rescale)
    tensors = [leaf.detach() for leaf in qkv()]
    # Heads next to tokens, as in models before they transpose; an expanded mask; strided keys.
    views = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    views[1] = torch.stack([tensors[1], tensors[1]], dim=-1).flatten(-2)[..., ::2]
    attention_mask = masks()[mask]
    expanded = attention_mask.expand(2, 2, TOKENS, TOKENS) if attention_mask is not None else None
    assert not any(view.is_contiguous() for view in views)
    outs = []
    for (q, k, v), form in ((tensors, attention_mask), (views, expanded)):
        torch.manual_seed(0)
        outs.append(attend(q, k, v, site, training=True, mask=form, causal=True))
    torch.testing.assert_close(outs[0], outs[1])


def attention_with(site: Site) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, training: bool) -> Tensor:
        return attend(q, k, v, site, training=training, mask=mask, causal=True)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "rescale", "mask"),
    [(unit, rescale, "padding") for unit in UNITS for rescale in RESCALES]
    + [("element", rescale, mask) for rescale in RESCALES for mask in ("none", "bias")],
)
def test_compile_in_one_graph(unit: Unit, rescale: Rescale, mask: str) -> None:
    """Forward and backward are traced in one graph, with the same random numbers; code generation is tested below."""
    torch._dynamo.reset()
    run = attention_with(site_of(unit, rescale))
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    leaves = qkv()
    for training in (True, False):
        torch.manual_seed(0)
        expected = run(*leaves, masks()[mask], training)
        torch.manual_seed(0)
        out = compiled(*leaves, masks()[mask], training)
        torch.testing.assert_close(out, expected)
        for grad, expected_grad in zip(
            torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True
        ):
            torch.testing.assert_close(grad, expected_grad)


@pytest.mark.slow
def test_compile_with_shapes_that_change() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    site = drop_site("element", window=2)
    compiled = torch.compile(attention_with(site), fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, keys in ((2, 7), (3, 11), (5, 4)):
        q, k, v = qkv(batch, keys, keys)
        assert compiled(q, k, v, None, True).shape == q.shape
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


@pytest.mark.slow
@each_rescale
def test_compile_with_ratios_that_change(rescale: Rescale) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    site = drop_site("element", rescale=rescale)
    run = attention_with(site)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    leaves = qkv()
    for site.ratio in (0.1, 0.2, 0.3, 0.4):
        torch.manual_seed(0)
        expected = run(*leaves, None, True)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(*leaves, None, True), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # the second for all further ratios


@each_unit
@each_rescale
def test_activation_checkpointing_recomputes_the_same_mask(unit: Unit, rescale: Rescale) -> None:
    site = site_of(unit, rescale)

    def grads(checkpointed: bool) -> list[Tensor]:
        leaves = qkv()

        def block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(attend(q, k, v, site, training=True), k, v, site, training=True)

        torch.manual_seed(0)
        out = checkpoint(block, *leaves, use_reentrant=False) if checkpointed else block(*leaves)
        return list(torch.autograd.grad(out.square().sum(), leaves))

    for grad, expected in zip(grads(checkpointed=True), grads(checkpointed=False), strict=True):
        assert torch.equal(grad, expected)


def test_export_in_evaluation() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.site = site_of("element", "renormalize")

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            return attend(q, k, v, self.site, training=self.training)

    model = Model().eval()
    x = torch.randn(2, TOKENS, 8)
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))
