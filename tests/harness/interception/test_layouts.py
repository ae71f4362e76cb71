"""Test every regularizer of attention on every layout of a call: it trains, or is refused when it is bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dropbench import REGULARIZERS, InputError, training_loss
from dropbench.harness.models.regularize import OBJECTIVE, bind
from dropbench.harness.models.sites import ATTENTION_KINDS
from dropbench.harness.regularizers.spec import build_regularizer

PARAMS: dict[str, dict[str, Any]] = {"ad-drop": {"alternate": False}, "learned-dropout": {"where": "attention"}}
REST = frozenset(REGULARIZERS) - {"none"}
X = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(0))


class Layout(nn.Module):
    """Attention whose call has a layout of its own."""

    num_heads: int = 2
    keys = 8

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        out = self.attend(q, k[..., : self.keys, :], v[..., : self.keys, :])
        projected: Tensor = self.proj(out.transpose(1, 2).flatten(2))
        return projected

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)


class FoldedHeads(Layout):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)).view(q.shape)


class FewerKeys(Layout):
    keys = 5


class Softmax(Layout):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(dim=-1) @ v


class SharedQueries(Layout):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q[:1], k, v)


class SoftmaxOfFewerKeys(Softmax):
    keys = 5


class SoftmaxOfFoldedHeads(Layout):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm((q @ k.mT).flatten(0, 1).softmax(dim=-1), v.flatten(0, 1)).view(q.shape)


class SoftmaxOfHeadsAfterQueries(Layout):
    num_heads = 4

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT).transpose(1, 2).softmax(dim=-1)
        return torch.einsum("bths,bhsd->bhtd", weights, v)


class SoftmaxOfWindows(Layout):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (each.unflatten(2, (2, 4)).transpose(1, 2) for each in (q, k, v))  # (B, windows, H, T, d)
        return ((q @ k.mT).softmax(dim=-1) @ v).transpose(1, 2).flatten(2, 3)


class SoftmaxOfOneHead(Softmax):
    num_heads = 1


class SoftmaxByOption(Layout):
    def __init__(self) -> None:
        super().__init__()
        self.fused_attn = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused_attn:
            return scaled_dot_product_attention(q, k, v)
        return (q @ k.mT).softmax(dim=-1) @ v


LAYOUTS = (
    Layout, FoldedHeads, FewerKeys, SharedQueries, Softmax, SoftmaxOfFewerKeys, SoftmaxOfFoldedHeads,
    SoftmaxOfHeadsAfterQueries, SoftmaxOfWindows, SoftmaxOfOneHead, SoftmaxByOption,
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(REST))
def test_a_regularizer_trains_or_is_refused_on_each_layout(name: str) -> None:
    for layout in LAYOUTS:
        check(name, layout)


def check(name: str, layout: type[Layout]) -> None:
    torch.manual_seed(0)
    model = layout().train()
    plain = model.eval()(X)
    try:
        report = bind(model.train(), build_regularizer(name, **PARAMS.get(name, {})), kinds=ATTENTION_KINDS)
    except InputError:
        return
    if report.regularizer.has_objective:
        vars(model)[OBJECTIVE] = report.regularizer

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        scores = model(batch)
        return scores.square().mean(), scores

    if name == "learned-dropout" and layout is FewerKeys:  # which only a call shows
        with pytest.raises(InputError, match="8 queries on 5 keys"):
            model(X)
        return
    training_loss(model, forward, X, epoch=1).backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.qkv.parameters())
    assert name == "learned-dropout" or torch.equal(model.eval()(X), plain)
