"""Compare the presets of `UnitDrop` and the baselines with their formulas in float64, one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers import BASELINES
from dropbench.harness.regularizers.spec import build_regularizer
from tests.covering import each_pair
from tests.harness.given import site_with
from tests.harness.regularizers.methods import reference

BATCH, HEADS, RATIO = 3, 2, 0.5
DROPS: dict[str, dict[str, int]] = {
    "dropout": {},
    "dropkey": {},
    "dropkey-block": {"window": 2},
    "dropkey-cross": {},
    "dropattention-c": {"window": 2},
    "dropattention-e": {"window": 2},
    "dropattention-detached": {},
}


@each_pair(name=[*BASELINES, *DROPS], mask=["none", "padding", "bias", "of heads"], causal=[False, True])
def test_values_and_gradients_equal_the_formula(name: str, mask: str, causal: bool) -> None:
    given, params = reference.masks(BATCH, HEADS)[mask], {"ratio": RATIO, **DROPS[name]} if name in DROPS else {}
    site = site_with(build_regularizer(name, **params), grid=(2, 3))
    q, k, v = reference.qkv(BATCH, HEADS)
    own = 0.0 if name == "none" else 0.5  # the model's own dropout, which `none` would keep

    def run(values: Tensor) -> Tensor:
        torch.manual_seed(7)
        return attend(q, k, values, site, training=True, mask=given, causal=causal, dropout=own)

    kept = run(torch.eye(reference.TOKENS, dtype=torch.float64).expand(BATCH, HEADS, -1, -1)).detach() != 0
    out, expected, dropped = run(v), [], False
    for b in range(BATCH):
        for h in range(HEADS):
            weights = reference.weights(q[b, h], k[b, h], reference.of_head(given, b, h), causal=causal)
            dropped |= bool((~kept[b, h] & (weights > 0)).any())
            if name == "dropout":
                weights = weights * kept[b, h] / (1 - RATIO)
            elif name in DROPS:
                weights = weights * kept[b, h]
                total = weights.sum(dim=-1, keepdim=True)
                weights = weights / (total.detach() if name == "dropattention-detached" else total)
            expected.append(weights @ v[b, h])
    reference.assert_equal(name, out, torch.stack(expected).view(out.shape), (q, k, v))
    assert dropped == (name in DROPS)
