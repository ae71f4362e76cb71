"""Weights averaged over keep masks, against loops, against training, and against the exact expectation."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.attention.reference import expectation
from dropbench.harness.attention.reference.expectation import average_weights
from dropbench.harness.attention.reference.sdpa import allowed_keys, attention_logits
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.drop import UnitDrop
from tests.harness.given import drop_site, given_drop, site_with


@pytest.mark.parametrize("rescale", ["renormalize", "inverse"])
@pytest.mark.parametrize("additive", [False, True])
def test_average_equals_the_mean_of_training_passes(rescale: Any, additive: bool) -> None:
    """Apply every keep mask through `attend` in training, the same for all rows."""
    q, k, v = (torch.randn(2, 3, 7, 4, dtype=torch.float64) * 3 for _ in range(3))
    q[:, :, 1] *= 100  # a row that one key dominates, so that the others underflow
    mask: Tensor = torch.rand(2, 1, 7, 7) < 0.6
    mask[0, 0, 4] = False  # a row without an allowed key
    kept = torch.rand(40, 7) < 0.5
    kept[0] = False
    if additive:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e9)
    outs = []
    for draw in kept:
        site = site_with(given_drop(~draw.view(1, 1, 1, 7), rescale))
        outs.append(attend(q, k, v, site, training=True, mask=mask))
    allowed = allowed_keys(mask)
    logits = attention_logits(q, k, mask=mask)
    weights = average_weights(logits, kept, rescale=rescale, ratio=0.3, allowed=allowed)
    assert torch.allclose(weights @ v, torch.stack(outs).mean(0), atol=1e-12, rtol=0)


def test_blocks_do_not_change_the_average_and_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, kept, allowed = torch.randn(37, 6).double(), torch.rand(70, 6) < 0.6, torch.rand(37, 6) < 0.7
    whole = average_weights(logits, kept, rescale="renormalize", ratio=0.4, allowed=allowed)
    pairs = []

    def recording(weights: Tensor, logits: Tensor, allowed: Tensor, keep: Tensor, step: int, max_pairs: int) -> Tensor:
        pairs.append(len(weights) * step)
        return renormalized(weights, logits, allowed, keep, step, max_pairs)

    renormalized = expectation._renormalized
    monkeypatch.setattr(expectation, "_renormalized", recording)
    monkeypatch.setattr(expectation, "MASKS_PER_BLOCK", 8)
    monkeypatch.setattr(expectation, "BLOCK_PAIRS", {"cpu": 100})
    parts = average_weights(logits, kept, rescale="renormalize", ratio=0.4, allowed=allowed)
    assert torch.allclose(parts, whole, atol=1e-12, rtol=0)
    assert len(pairs) > 3
    assert max(pairs) <= 100


@pytest.mark.parametrize("unit", ["element", "column", "block", "cross"])
def test_units_average_to_the_mean_of_training_passes(unit: Any) -> None:
    """The mean over many training passes, with a mask per row, is the same within the standard errors."""
    torch.manual_seed(1)
    site = drop_site(unit, ratio=0.4, window=2, grid=(3, 3), prefix=1)
    q, k = (torch.randn(1, 1, 10, 4, dtype=torch.float64) for _ in range(2))
    unit_values = torch.eye(10, dtype=torch.float64).expand(1, 1, 10, 10)
    queries, keys, values = (part.expand(4000, -1, -1, -1) for part in (q, k, unit_values))
    many = attend(queries, keys, values, site, training=True)
    site.mc_samples = 20_000
    probed: list[Tensor] = []
    site.probe = lambda _, weights: probed.append(weights)
    out = attend(q, k, unit_values, site, training=False)
    error = many.std(dim=0) / math.sqrt(4000) + 0.5 / math.sqrt(20_000)
    assert ((out[0] - many.mean(0)).abs() < 4 * error).all()
    assert torch.equal(probed[0], out)


def test_averaging_changes_neither_training_nor_plain_evaluation() -> None:
    site = drop_site("element")
    q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))
    plain = attend(q, k, v, site, training=False)
    assert torch.equal(plain, scaled_dot_product_attention(q, k, v))
    torch.manual_seed(3)
    trained = attend(q, k, v, site, training=True)
    site.mc_samples = 5
    torch.manual_seed(3)
    assert torch.equal(attend(q, k, v, site, training=True), trained)
    assert not torch.allclose(attend(q, k, v, site, training=False), plain, atol=1e-4)
    site.ratio = 0.0
    assert torch.equal(attend(q, k, v, site, training=False), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_and_autocast_average_in_float32(dtype: torch.dtype) -> None:
    site = drop_site("element")
    site.mc_samples = 200
    q, k, v = (torch.randn(1, 2, 8, 4).to(dtype) for _ in range(3))
    torch.manual_seed(0)
    expected = attend(q.float(), k.float(), v.float(), site, training=False)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = attend(q, k, v, site, training=False)
    assert torch.allclose(actual.float(), expected, atol=2e-2)


def test_nan_is_not_hidden() -> None:
    site = drop_site("element")
    site.mc_samples = 20
    q, k, v = (torch.randn(1, 1, 4, 4) for _ in range(3))
    q[0, 0, 2, 1] = float("nan")
    out = attend(q, k, v, site, training=False)
    assert out[0, 0, 2].isnan().all()
    assert not out[0, 0, [0, 1, 3]].isnan().any()


class Halved(Regularizer):
    """A regularizer with its own attention: half of the passes attend to the first key only."""

    ratio: ClassVar[None] = None

    def attend(self, call: Call, site: Site) -> Tensor:
        if torch.rand(()) < 0.5:
            return call.v[..., :1, :].expand(call.q.shape)
        return plain(call)


class DiagonalDrop(UnitDrop):
    """Drops only the key at each query's own position, so that rows differ."""

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        return super().sample_drop_mask(shape, site, device) & torch.eye(*shape[-2:], dtype=torch.bool)


@pytest.mark.parametrize("regularizer", [Halved(), DiagonalDrop(ratio=0.5)])
def test_a_custom_regularizer_is_averaged_pass_by_pass(regularizer: Regularizer) -> None:
    site = site_with(regularizer)
    q, k, v = (torch.randn(2, 2, 4, 4, dtype=torch.float64) for _ in range(3))
    torch.manual_seed(5)
    mean = torch.stack([attend(q, k, v, site, training=True) for _ in range(10)]).mean(0)
    site.mc_samples = 10
    torch.manual_seed(5)
    assert torch.allclose(attend(q, k, v, site, training=False), mean, atol=1e-12)
