"""Learned Dropout against its formulas in float64: values and gradients, with nothing shared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask
from dropbench.harness.regularizers.learned_dropout.regularizer import LearnedDropout
from tests.harness.regularizers.methods.reference import check


def reference(
    x: Tensor, weight: Tensor, shift: Tensor, amplitude: Tensor, *, heads: int, allowed: Tensor, rounding: str,
    scale: float, noise: Tensor, training: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output and the mask M by the formulas of the source, one head of a sample at a time."""
    q, k, v = (x @ weight.T).chunk(3, dim=-1)
    samples = []
    for b in range(len(x)):
        outs = []
        for c in torch.arange(x.shape[-1]).chunk(heads):
            powers = (q[b][:, c] @ k[b][:, c].T / math.sqrt(len(c))).exp() * allowed[b]
            outs.append(powers / powers.sum(dim=-1, keepdim=True) @ v[b][:, c])
        samples.append(torch.cat(outs, dim=-1))
    out, share = torch.stack(samples), amplitude / amplitude.abs().sum(dim=0)
    waves = [share[n] * torch.cos((n + 1) * out + shift[n]) for n in range(len(shift))]
    m = 0.5 * torch.stack(waves).sum(dim=0) + 0.5
    steep = 1 / (1 + (-scale * (m - 0.5)).exp())
    through = m - m.detach()  # 0 with the gradient of M
    if rounding == "noise-and-linear":
        return x * ((noise <= m if training else m >= 0.5) + through), m
    return x * {"none": m, "sigmoid": steep, "sigmoid-detach": steep.detach() + through}[rounding], m


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(
    shape=SHAPES,
    seed=st.integers(0, 2**31),
    rounding=st.sampled_from(["noise-and-linear", "sigmoid", "sigmoid-detach", "none"]),
    penalty=st.sampled_from(["squared", "linear"]),
    shift=st.floats(0, math.pi),
    harmonics=st.integers(1, 3),
    mask=st.sampled_from(["causal", "padding", "causal padding", "all"]),
    training=st.booleans(),
)
def test_values_and_gradients_are_the_formulas(
    shape: tuple[int, int, int, int],
    seed: int,
    rounding: Any,
    penalty: Any,
    shift: float,
    harmonics: int,
    mask: str,
    training: bool,
) -> None:
    batch, tokens, heads, size = shape
    width = heads * size
    rng = np.random.default_rng(seed)
    options = LearnedDropout(
        mask_rounding=rounding,
        sigmoid_scale=7.0 if rounding.startswith("sigmoid") else 60.0,
        shift_init=shift,
        harmonics=harmonics,
        l1_norm_penalty=penalty,
        max_coeff=0.7,
        entropy_penalty=True,
        entropy_max_coeff=0.3,
    )
    ours = LearnedMask(options, width, heads).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.from_numpy(rng.normal(size=parameter.shape) * 0.7))
    x = torch.from_numpy(rng.normal(size=(batch, tokens, width))).requires_grad_()
    upstream = torch.from_numpy(rng.normal(size=(batch, tokens, width)))
    allowed = torch.ones(batch, tokens, tokens, dtype=torch.bool)
    given_mask = None
    if "padding" in mask:
        real = torch.arange(tokens) < torch.from_numpy(rng.integers(1, tokens + 1, size=batch))[:, None]
        allowed &= real[:, None, :]
        given_mask = real[:, None, None, :]
    if "causal" in mask:
        allowed &= torch.ones(tokens, tokens, dtype=torch.bool).tril()
    torch.manual_seed(seed)
    noise = torch.rand(batch, tokens, width, dtype=torch.float64)
    amplitude = ours.amplitude.view(harmonics, width) if harmonics > 1 else torch.ones(1, width)
    expected, m = reference(
        x, ours.qkv.weight, ours.shift.view(harmonics, width), amplitude, heads=heads, allowed=allowed,
        rounding=rounding, scale=options.sigmoid_scale, noise=noise, training=training,
    )  # fmt: skip
    torch.manual_seed(seed)
    out = ours(x, training=training, mask=given_mask, causal="causal" in mask)
    check("learned-dropout", out, expected)
    total, slow_total = ((value * upstream).sum() for value in (out, expected))
    extra = ours.penalty(0)
    assert (extra is not None) == training
    if extra is not None:
        norms = m**2 / 2 if penalty == "squared" else m.abs()
        slow_extra = 0.7 * norms.mean() - 0.3 * (m * torch.log2(m + 1e-9)).mean()
        check("learned-dropout", extra, slow_extra)
        total, slow_total = total + extra, slow_total + slow_extra
    leaves = [x, *ours.parameters()]
    for own, slow in zip(*(torch.autograd.grad(each, leaves) for each in (total, slow_total)), strict=True):
        check("learned-dropout", own, slow)
