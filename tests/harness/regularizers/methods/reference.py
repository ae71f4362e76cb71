"""Attention in float64, one head at a time, for the references of the methods, and the errors of the methods."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.base import Regularizer

TOKENS, SIZE = 6, 4
TOLERANCE = 1e-10
ERRORS: dict[str, float] = {}
"""The largest difference from its reference by name of a regularizer, in values and gradients, in the tests so far."""


def qkv(batch: int, heads: int, tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(batch, heads, tokens, SIZE, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )
    return q, k, v


def masks(batch: int, heads: int, tokens: int = TOKENS) -> dict[str, Tensor | None]:
    """Return a mask of each form; the last two keys of the last sample are padding, if any is."""
    padded = torch.ones(batch, 1, 1, tokens, dtype=torch.bool)
    padded[-1, ..., -2:] = False
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(1, heads, tokens, tokens, generator=generator, dtype=torch.float64)
    return {"none": None, "padding": padded, "bias": bias.masked_fill(~padded, -math.inf), "of heads": bias[0]}


def of_head(mask: Tensor | None, b: int, h: int) -> Tensor | None:
    """Return the mask (T or 1, S) of a head of a sample."""
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    return mask[min(b, mask.shape[0] - 1), min(h, mask.shape[1] - 1)]


def logits(q: Tensor, k: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Return the logits (T, S) of a head, −∞ for forbidden keys."""
    a = q @ k.T / math.sqrt(q.shape[-1])
    if mask is not None:
        a = a.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else a + mask
    return a.masked_fill(torch.ones(a.shape, dtype=torch.bool).triu(1), -math.inf) if causal else a


def weights(q: Tensor, k: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    a = logits(q, k, mask, causal=causal)
    return a.exp() / a.exp().sum(dim=-1, keepdim=True)


def check(name: str, ours: object, expected: object) -> None:
    """Compare numbers of a regularizer with its reference within `TOLERANCE`, and note the largest difference."""
    own, other = (torch.as_tensor(value, dtype=torch.float64).detach() for value in (ours, expected))
    assert own.shape == other.shape
    difference = float((own - other).abs().max()) if own.numel() else 0.0
    assert difference <= TOLERANCE, f"{name}: {difference}"
    ERRORS[name] = max(ERRORS.get(name, 0.0), difference)


def name_of(regularizer: Regularizer) -> str:
    """Return the registered name of a regularizer's class."""
    return next(name for name in REGULARIZERS if REGULARIZERS.get(name) is type(regularizer))


def assert_equal(name: str, out: Tensor, expected: Tensor, leaves: Sequence[Tensor]) -> None:
    """Compare values and gradients of a regularizer with its reference."""
    check(name, out, expected)
    direction = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view(out.shape)
    grads, expected_grads = (
        torch.autograd.grad(x, leaves, direction, allow_unused=True, materialize_grads=True) for x in (out, expected)
    )
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        check(name, grad, expected_grad)
