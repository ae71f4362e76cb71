"""A regularised attention layer, forward and backward, against plain SDPA and the usual ways to drop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Measurement, compare
from harness.attention import attend
from harness.regularizers.spec import build_regularizer
from harness.site import Site

SHAPES = ((16, 6, 197, 64), (8, 8, 512, 64))
RATIO = 0.3


def attention() -> list[Measurement]:
    """Each regularizer, SDPA's own dropout and DropKey as its Algorithm 1 writes it, all over plain SDPA."""
    torch.manual_seed(0)
    found = []
    for shape in SHAPES:
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))

        def step(call: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: tuple[Tensor, ...] = (q, k, v)) -> None:
            call(*inputs).sum().backward()
            for tensor in inputs:
                tensor.grad = None

        ways = {
            "dropkey": _ours("dropkey"),
            "dropattention-e, w=2": _ours("dropattention-e", window=2),
            "dropattention-c, w=2": _ours("dropattention-c", window=2),
            "dropout": _ours("dropout"),
            "SDPA with dropout_p": lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout_p=RATIO),
            "DropKey, Algorithm 1": _naive,
        }
        for name, way in ways.items():
            found.append(
                compare(
                    f"{name}, {'×'.join(map(str, shape))}",
                    lambda way=way, step=step: step(way),  # type: ignore[misc]
                    "SDPA, nothing dropped",
                    lambda step=step: step(scaled_dot_product_attention),  # type: ignore[misc]
                    limit=None,
                    rounds=10,
                    detail={"threads": torch.get_num_threads(), "dtype": "float32", "device": "cpu"},
                )
            )
    return found


def _ours(name: str, **params: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    site = Site("benchmark", "encoder-self", 0, 1, 1)
    site.regularizer, site.ratio = build_regularizer(name, ratio=RATIO, **params), RATIO
    return lambda q, k, v: attend(q, k, v, site, training=True)


def _naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """DropKey's Algorithm 1, with a large number where its print has a tiny one."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    logits = logits + torch.bernoulli(torch.full_like(logits, RATIO)) * -1e12
    out: Tensor = logits.softmax(dim=-1) @ v
    return out
