"""Learned Dropout against its formulas: values and gradients, computed slowly in float64 with nothing shared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask
from dropbench.harness.regularizers.learned_dropout.regularizer import LearnedDropout
from tests.harness.regularizers.methods.reference import check

Array = npt.NDArray[np.float64]


@dataclass
class Reference:
    """The formulas of the source, one element at a time, forwards and backwards."""

    x: Array
    weight: Array
    shift: Array
    amplitude: Array
    heads: int
    allowed: npt.NDArray[np.bool_]
    rounding: str
    scale: float
    noise: Array
    training: bool
    penalty: str
    coeff: float
    entropy_coeff: float
    gradients: dict[str, Array] = field(default_factory=dict)

    def forward(self) -> Array:
        batch, tokens, width = self.x.shape
        size = width // self.heads
        qkv = np.einsum("btc,oc->bto", self.x, self.weight)
        self.q, self.k, self.v = (qkv[..., part * width : (part + 1) * width] for part in range(3))
        self.p = np.zeros((batch, self.heads, tokens, tokens))
        self.out = np.zeros_like(self.x)
        for b in range(batch):
            for h in range(self.heads):
                channels = slice(h * size, (h + 1) * size)
                for t in range(tokens):
                    seen = [s for s in range(tokens) if self.allowed[b, t, s]]
                    logits = [float(self.q[b, t, channels] @ self.k[b, s, channels]) / math.sqrt(size) for s in seen]
                    total = sum(math.exp(logit) for logit in logits)
                    for s, logit in zip(seen, logits, strict=True):
                        self.p[b, h, t, s] = math.exp(logit) / total
                        self.out[b, t, channels] += self.p[b, h, t, s] * self.v[b, s, channels]
        self.share = self.amplitude / np.abs(self.amplitude).sum(axis=0)
        self.m = np.zeros_like(self.x)
        for index in np.ndindex(self.m.shape):
            c = index[2]
            angles = [n * self.out[index] + self.shift[n - 1, c] for n in range(1, len(self.shift) + 1)]
            waves = [self.share[n, c] * math.cos(angle) for n, angle in enumerate(angles)]
            self.m[index] = 0.5 * sum(waves) + 0.5
        self.rounded = np.zeros_like(self.m)
        self.slope = np.ones_like(self.m)
        for index in np.ndindex(self.m.shape):
            m = self.m[index]
            steep = 1 / (1 + math.exp(-self.scale * (m - 0.5)))
            if self.rounding == "noise-and-linear":
                keep = self.noise[index] <= m if self.training else m >= 0.5
                self.rounded[index] = 1.0 if keep else 0.0
            elif self.rounding == "none":
                self.rounded[index] = m
            else:
                self.rounded[index] = steep
                if self.rounding == "sigmoid":
                    self.slope[index] = self.scale * steep * (1 - steep)
        return self.x * self.rounded

    def loss(self) -> float:
        """The penalty alone."""
        norms = self.m**2 / 2 if self.penalty == "squared" else np.abs(self.m)
        entropies = -self.m * np.log2(self.m + 1e-9)
        return self.coeff * float(norms.mean()) + self.entropy_coeff * float(entropies.mean())

    def backward(self, upstream: Array) -> None:
        """Gradients of sum(output · upstream) + penalty, by hand."""
        batch, tokens, width = self.x.shape
        size = width // self.heads
        d_m = upstream * self.x * self.slope
        d_m += self.coeff * (self.m if self.penalty == "squared" else np.sign(self.m)) / self.m.size
        d_entropy = -np.log2(self.m + 1e-9) - self.m / ((self.m + 1e-9) * math.log(2))
        d_m += self.entropy_coeff * d_entropy / self.m.size
        d_out = np.zeros_like(self.x)
        d_shift = np.zeros_like(self.shift)
        d_share = np.zeros_like(self.amplitude)
        for n in range(1, len(self.shift) + 1):
            angle = n * self.out + self.shift[n - 1]
            slope = -0.5 * self.share[n - 1] * np.sin(angle) * d_m
            d_out += n * slope
            d_shift[n - 1] = slope.sum(axis=(0, 1))
            d_share[n - 1] = (0.5 * np.cos(angle) * d_m).sum(axis=(0, 1))
        total = np.abs(self.amplitude).sum(axis=0)
        inner = (d_share * self.amplitude).sum(axis=0)
        d_amplitude = d_share / total - np.sign(self.amplitude) * inner / total**2
        d_q, d_k, d_v = np.zeros_like(self.x), np.zeros_like(self.x), np.zeros_like(self.x)
        for b in range(batch):
            for h in range(self.heads):
                channels = slice(h * size, (h + 1) * size)
                for t in range(tokens):
                    p = self.p[b, h, t]
                    d_p = np.array([float(d_out[b, t, channels] @ self.v[b, s, channels]) for s in range(tokens)])
                    d_logit = p * (d_p - float(d_p @ p)) / math.sqrt(size)
                    for s in range(tokens):
                        d_v[b, s, channels] += p[s] * d_out[b, t, channels]
                        d_q[b, t, channels] += d_logit[s] * self.k[b, s, channels]
                        d_k[b, s, channels] += d_logit[s] * self.q[b, t, channels]
        d_qkv = np.concatenate([d_q, d_k, d_v], axis=-1)
        self.gradients = {
            "x": upstream * self.rounded + np.einsum("bto,oc->btc", d_qkv, self.weight),
            "qkv.weight": np.einsum("bto,btc->oc", d_qkv, self.x),
            "shift": d_shift.ravel(),
            "amplitude": d_amplitude.ravel(),
        }


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
    upstream = rng.normal(size=(batch, tokens, width))
    allowed = np.ones((batch, tokens, tokens), dtype=bool)
    given_mask = None
    if "padding" in mask:
        lengths = rng.integers(1, tokens + 1, size=batch)
        real = np.arange(tokens) < lengths[:, None]
        allowed &= real[:, None, :]
        given_mask = torch.from_numpy(real)[:, None, None, :]
    if "causal" in mask:
        allowed &= np.tril(np.ones((tokens, tokens), dtype=bool))
    torch.manual_seed(seed)
    noise = torch.rand(batch, tokens, width, dtype=torch.float64)
    slow = Reference(
        x=x.detach().numpy(),
        weight=ours.qkv.weight.detach().numpy(),
        shift=ours.shift.detach().numpy().reshape(harmonics, width),
        amplitude=(ours.amplitude.detach().numpy().reshape(harmonics, width) if harmonics > 1 else np.ones((1, width))),
        heads=heads,
        allowed=allowed,
        rounding=rounding,
        scale=options.sigmoid_scale,
        noise=noise.numpy(),
        training=training,
        penalty=penalty,
        coeff=0.7 if training else 0.0,
        entropy_coeff=0.3 if training else 0.0,
    )
    expected = slow.forward()
    slow.backward(upstream)

    torch.manual_seed(seed)
    out = ours(x, training=training, mask=given_mask, causal="causal" in mask)
    extra = ours.penalty(0)
    assert (extra is not None) == training
    total = (out * torch.from_numpy(upstream)).sum()
    if extra is not None:
        check("learned-dropout", extra, slow.loss())
        total = total + extra
    total.backward()

    check("learned-dropout", out, expected)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()} | {"x": x.grad}
    for name, gradient in gradients.items():
        assert gradient is not None
        check("learned-dropout", gradient, slow.gradients[name])
