"""Regularizers of logits: against the formulas row by row in float64, statistics of the draws, and compositions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dropbench.harness.attention.reference.drop_masks import drop_mask, sample_spec
from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.methods.logits import AttentionDropBlur, AttentionDropTopK, LogitNoise, Temperature
from dropbench.harness.regularizers.schedules import constant
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods import reference

HEADS, BATCH, TOKENS = 2, 3, reference.TOKENS
MASKS = ["none", "padding", "bias", "of heads"]
NAMES = ["logit-noise", "temperature", "attentiondrop-topk", "attentiondrop-blur"]


def bound(regularizer: Regularizer) -> Site:
    site = Site("attention", "encoder-self", 0, 1, HEADS)
    regularizer.bind_to(site, constant)
    return site


def compare(regularizer: Regularizer, mask: str, change: Any, *, causal: bool, seed: int = 3) -> None:
    """Compare with `change`, a function of (logits of a head, its sample, its index), before the softmax."""
    given = reference.masks(BATCH, HEADS)[mask]
    q, k, v = reference.qkv(BATCH, HEADS)
    torch.manual_seed(seed)
    out = attend(q, k, v, bound(regularizer), training=True, mask=given, causal=causal)
    expected = torch.zeros_like(out)
    for b in range(BATCH):
        for h in range(HEADS):
            a = reference.logits(q[b, h], k[b, h], reference.of_head(given, b, h), causal=causal)
            changed = change(a, b, h)
            expected[b, h] = changed.exp() / changed.exp().sum(dim=-1, keepdim=True) @ v[b, h]
    reference.assert_equal(reference.name_of(regularizer), out, expected, (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_noise_equals_its_formula(mask: str, causal: bool) -> None:
    torch.manual_seed(3)
    noise = 0.7 * torch.randn(BATCH, HEADS, TOKENS, TOKENS, dtype=torch.float64)
    compare(LogitNoise(sigma=0.7), mask, lambda a, b, h: a + noise[b, h], causal=causal)


def test_the_noise_is_gaussian_and_independent() -> None:
    """With two keys of equal logits, log(λ₁ / λ₀) is the difference of two numbers of N(0, σ²)."""
    number, sigma = 100_000, 0.5
    q, k = torch.zeros(number, 1, 1, 1), torch.zeros(number, 1, 2, 1)
    torch.manual_seed(0)
    weights = attend(q, k, torch.eye(2).expand(number, 1, 2, 2), bound(LogitNoise(sigma=sigma)), training=True)
    gap = (weights[..., 1] / weights[..., 0]).log().double().flatten()
    assert abs(float(gap.mean())) < 4 * sigma * math.sqrt(2 / number)
    assert float(gap.var()) == pytest.approx(2 * sigma**2, rel=4 * math.sqrt(2 / number))
    assert float((gap.abs() < sigma * math.sqrt(2)).double().mean()) == pytest.approx(0.6827, abs=0.006)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_temperature_equals_its_formula(mask: str, causal: bool) -> None:
    compare(Temperature(spread=0.8), mask, lambda a, b, h: a / 1.8, causal=causal)


def test_temperature_falls_to_1_by_a_schedule() -> None:
    site = bound(Temperature(spread=0.5, over="decreasing@1"))
    assert site.regularizer is not None
    site.regularizer.set_progress(site, 1.0)
    q, k, v = reference.qkv(BATCH, HEADS)
    assert torch.equal(attend(q, k, v, site, training=True), scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("top", [2, 9])
def test_topk_equals_the_paper_formula(mask: str, causal: bool, top: int) -> None:
    """L'_j = M_j L_j for the k largest logits that the query may attend to, more of them than there are included."""
    torch.manual_seed(3)
    dropped = drop_mask(sample_spec("element", 0.5, 1, TOKENS), (BATCH, HEADS, TOKENS, TOKENS))

    def change(a: Tensor, b: int, h: int) -> Tensor:
        changed = a.clone()
        for row in range(TOKENS):
            order = a[row].detach().argsort(descending=True)
            for key in order[:top].tolist():
                if dropped[b, h, row, key] and a[row, key] > -math.inf:
                    changed[row, key] = 0.0
        return changed

    compare(AttentionDropTopK(ratio=0.5, top=top), mask, change, causal=causal)


def test_topk_drops_the_largest_logits_with_the_ratio() -> None:
    number, ratio, top = 20_000, 0.3, 2
    logits = torch.tensor([3.0, 1.0, 2.0, 0.5])
    q, k = torch.ones(number, 1, 1, 1), logits.expand(number, 1, 4).unsqueeze(-1)
    torch.manual_seed(0)
    weights = attend(
        q, k, torch.eye(4).expand(number, 1, 4, 4), bound(AttentionDropTopK(ratio=ratio, top=top)), training=True
    )
    changed = (weights / weights[..., 3:]).log()[:, 0, 0] + 0.5  # the logits, as the last one is never changed
    zero = changed.abs() < 1e-5
    error = math.sqrt(ratio * (1 - ratio) / number)
    shares = zero.double().mean(dim=0)
    assert float(shares[1]) == float(shares[3]) == 0.0
    assert abs(float(shares[0]) - ratio) < 4 * error
    assert abs(float(shares[2]) - ratio) < 4 * error
    both = float((zero[:, 0] & zero[:, 2]).double().mean())
    assert both == pytest.approx(ratio**2, abs=4 * math.sqrt(ratio**2 / number))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_blur_equals_the_paper_formula(mask: str, causal: bool) -> None:
    """G * L with Gaussian weights over a window, normalized over the keys that the query may attend to."""
    sigma_max, window = 2.0, 5
    torch.manual_seed(3)
    sigma = sigma_max * float(torch.rand(()))

    def change(a: Tensor, b: int, h: int) -> Tensor:
        changed = a.clone()
        for row in range(TOKENS):
            allowed = [key for key in range(TOKENS) if a[row, key] > -math.inf]
            for key in allowed:
                near = [j for j in allowed if abs(j - key) <= window // 2]
                gauss = {j: math.exp(-((j - key) ** 2) / (2 * sigma**2)) for j in near}
                changed[row, key] = sum(gauss[j] * a[row, j] for j in near) / sum(gauss.values())
        return changed

    compare(AttentionDropBlur(sigma=sigma_max, window=window), mask, change, causal=causal)


def test_the_width_of_the_blur_is_uniform() -> None:
    """One logit of 1 among zeros: its neighbour gets e^(−1/2σ²) of its own share."""
    site = bound(AttentionDropBlur(sigma=2.0, window=3))
    q, k = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 9, 1)
    k[0, 0, 4] = 1.0
    widths = []
    for seed in range(2000):
        torch.manual_seed(seed)
        weights = attend(q, k, torch.eye(9).expand(1, 1, 9, 9), site, training=True, scale=1.0).double().flatten()
        own, near = (float((weights[i] / weights[0]).log()) for i in (4, 3))
        widths.append(1 / math.sqrt(-2 * math.log(max(near / own, 1e-30))))
    wide = torch.tensor(sorted(width for width in widths if width > 0.5))
    assert len(wide) / 2000 == pytest.approx(0.75, abs=4 * math.sqrt(0.1875 / 2000))
    uniform = torch.linspace(0.5, 2.0, len(wide))
    assert (wide - uniform).abs().max() / 1.5 < 2.0 / math.sqrt(len(wide))  # Kolmogorov and Smirnov


def test_an_even_window_is_an_error() -> None:
    with pytest.raises(InputError, match="window=4: expected an odd number"):
        build_regularizer("attentiondrop-blur", window=4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hidden", ["padding", -1e4, torch.finfo(torch.float32).min])
def test_hidden_keys_never_get_weight(name: str, hidden: str | float) -> None:
    mask: Tensor = torch.ones(BATCH, 1, 1, TOKENS, dtype=torch.bool)
    mask[..., -2:] = False
    if not isinstance(hidden, str):
        mask = torch.zeros(mask.shape).masked_fill(~mask, hidden)
    q, k, v = (tensor.detach().float() for tensor in reference.qkv(BATCH, HEADS))
    outs = []
    for number in (0.0, 50.0):
        k, v = k.clone(), v.clone()
        k[..., -2:, :] = v[..., -2:, :] = number
        torch.manual_seed(0)
        outs.append(attend(q, k, v, bound(build_regularizer(name)), training=True, mask=mask))
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_keys_give_0_with_finite_gradients(name: str) -> None:
    mask = torch.ones(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool)
    mask[0, :, 2] = False
    q, k, v = reference.qkv(BATCH, HEADS)
    out = attend(q, k, v, bound(build_regularizer(name)), training=True, mask=mask)
    assert (out[0, :, 2] == 0).all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("name", NAMES)
def test_a_nan_is_not_hidden(name: str) -> None:
    q, k, v = (tensor.detach() for tensor in reference.qkv(BATCH, HEADS))
    k[0, 0, 3, 1] = math.nan
    out = attend(q, k, v, bound(build_regularizer(name)), training=True)
    assert out[0, 0].isnan().all()
    assert out[1:].isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_composition_drops_keys_of_the_changed_logits(name: str) -> None:
    """As many weights are 0 as with DropKey alone, and the rest sums to 1."""
    site = bound(build_regularizer(f"dropkey+{name}", **{"dropkey.ratio": 0.4}))
    q, k, _ = reference.qkv(400, HEADS)
    torch.manual_seed(0)
    weights = attend(q, k, torch.eye(TOKENS).double().expand(400, HEADS, -1, -1), site, training=True)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(400, HEADS, TOKENS, dtype=torch.float64))
    assert float((weights == 0).double().mean()) == pytest.approx(0.4 - 0.4**TOKENS, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["attentiondrop-topk", "attentiondrop-blur"])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    q, k, v = (tensor.detach().to(dtype) for tensor in reference.qkv(BATCH, HEADS))
    outs = []
    for kind in (dtype, torch.float32):
        torch.manual_seed(0)
        site = bound(build_regularizer(name))
        outs.append(attend(q.to(kind), k.to(kind), v.to(kind), site, training=True))
    assert outs[0].dtype == dtype
    torch.testing.assert_close(outs[0], outs[1].to(dtype), rtol=0, atol=torch.finfo(dtype).eps)
