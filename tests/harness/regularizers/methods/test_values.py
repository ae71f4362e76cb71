"""Value dropout: against loops over heads in float64, and statistics of the draws."""

from __future__ import annotations

import pytest
import torch

from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.methods.values import ValueDropout
from tests.harness.given import site_with
from tests.harness.regularizers.methods import reference

HEADS, BATCH, RATIO = 2, 3, 0.3


@pytest.mark.parametrize("mask", ["none", "padding", "bias", "of heads"])
def test_values_and_gradients_equal_the_formula(mask: str) -> None:
    given = reference.masks(BATCH, HEADS)[mask]
    q, k, v = reference.qkv(BATCH, HEADS)
    torch.manual_seed(3)
    kept = torch.nn.functional.dropout(torch.ones_like(v), RATIO) > 0
    torch.manual_seed(3)
    out = attend(q, k, v, site_with(ValueDropout(ratio=RATIO)), training=True, mask=given, causal=True)
    expected = torch.zeros_like(out)
    for b in range(BATCH):
        for h in range(HEADS):
            weights = reference.weights(q[b, h], k[b, h], reference.of_head(given, b, h), causal=True)
            expected[b, h] = weights @ torch.where(kept[b, h], v[b, h] / (1 - RATIO), 0.0)
    reference.assert_equal("value-dropout", out, expected, (q, k, v))
