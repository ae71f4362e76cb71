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
from dropbench.harness.regularizers.base import Regularizer
from dropbench.harness.regularizers.methods.logits import AttentionDropBlur, AttentionDropTopK, LogitNoise, Temperature
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.given import site_with
from tests.harness.regularizers.methods import reference

HEADS, BATCH, TOKENS = 2, 3, reference.TOKENS
MASKS = ["none", "padding", "bias", "of heads"]
NAMES = ["logit-noise", "temperature", "attentiondrop-topk", "attentiondrop-blur"]


def compare(regularizer: Regularizer, mask: str, change: Any, *, causal: bool, seed: int = 3) -> None:
    """Compare with `change`, a function of (logits of a head, its sample, its index), before the softmax."""
    given = reference.masks(BATCH, HEADS)[mask]
    q, k, v = reference.qkv(BATCH, HEADS)
    torch.manual_seed(seed)
    out = attend(q, k, v, site_with(regularizer), training=True, mask=given, causal=causal)
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_temperature_equals_its_formula(mask: str, causal: bool) -> None:
    compare(Temperature(spread=0.8), mask, lambda a, b, h: a / 1.8, causal=causal)


def test_temperature_falls_to_1_by_a_schedule() -> None:
    site = site_with(Temperature(spread=0.5, over="decreasing@1"))
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_blur_equals_the_paper_formula(mask: str, causal: bool) -> None:
    """G * L with Gaussian weights over a window, normalized over the keys that the query may attend to."""
    sigma_max, window = 2.0, 5
    torch.manual_seed(1)
    sigma = sigma_max * float(torch.rand(()))
    assert sigma > 1

    def change(a: Tensor, b: int, h: int) -> Tensor:
        changed = a.clone()
        for row in range(TOKENS):
            allowed = [key for key in range(TOKENS) if a[row, key] > -math.inf]
            for key in allowed:
                near = [j for j in allowed if abs(j - key) <= window // 2]
                gauss = {j: math.exp(-((j - key) ** 2) / (2 * sigma**2)) for j in near}
                changed[row, key] = sum(gauss[j] * a[row, j] for j in near) / sum(gauss.values())
        return changed

    compare(AttentionDropBlur(sigma=sigma_max, window=window), mask, change, causal=causal, seed=1)


def test_an_even_window_is_an_error() -> None:
    with pytest.raises(InputError, match="window=4: expected an odd number"):
        build_regularizer("attentiondrop-blur", window=4)


@pytest.mark.parametrize("name", NAMES)
def test_a_composition_drops_keys_of_the_changed_logits(name: str) -> None:
    """As many weights are 0 as with DropKey alone, and the rest sums to 1."""
    site = site_with(build_regularizer(f"dropkey+{name}", **{"dropkey.ratio": 0.4}))
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
        site = site_with(build_regularizer(name))
        outs.append(attend(q.to(kind), k.to(kind), v.to(kind), site, training=True))
    assert outs[0].dtype == dtype
    torch.testing.assert_close(outs[0], outs[1].to(dtype), rtol=0, atol=torch.finfo(dtype).eps)
