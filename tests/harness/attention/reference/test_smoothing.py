"""DropKey's claim (Section 3.1, Eq. 3 and 4): on average, weight moves from likely keys to unlikely ones.

All masks are enumerated, so there is no estimation error.
"""

from __future__ import annotations

import math
from itertools import pairwise, product

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from dropbench.harness.attention.reference.units import Rescale
from dropbench.harness.models.attention import attend
from tests.harness.attention.reference import scalar_loops
from tests.harness.given import given_drop, site_with

RATIOS = (0.05, 0.3, 0.7, 0.95)


def distribution(logits: list[float]) -> list[float]:
    terms = [math.exp(logit) for logit in logits]
    return [term / math.fsum(terms) for term in terms]


def mean_weights(p: list[float], d: float, rescale: Rescale) -> Tensor:
    """Return E[weights] of `attend` for weights p, with all 2^N masks as the samples of one batch."""
    masks = torch.tensor(list(product((False, True), repeat=len(p))))
    samples, keys = masks.shape
    site = site_with(given_drop(masks.view(samples, 1, 1, keys), rescale, d))
    q = torch.ones(samples, 1, 1, 1, dtype=torch.float64)
    k = torch.tensor(p, dtype=torch.float64).log().view(1, 1, keys, 1).expand(samples, -1, -1, -1)
    v = torch.eye(keys, dtype=torch.float64).expand(samples, 1, -1, -1)
    weights = attend(q, k, v, site, training=True)[:, 0, 0]
    lost = masks.sum(-1).double()
    return ((d**lost * (1 - d) ** (keys - lost))[:, None] * weights).sum(0)


distinct_logits = st.lists(st.integers(-40, 40), min_size=2, max_size=7, unique=True).map(
    lambda numbers: [number / 10 for number in numbers]
)


@settings(deadline=None, max_examples=60)
@given(logits=distinct_logits, d=st.sampled_from(RATIOS))
def test_likelier_keys_have_smaller_coefficients(logits: list[float], d: float) -> None:
    """Eq. 4: c_s < c_t if p_s > p_t, with c_j = E[weight_j] / p_j."""
    p = distribution(sorted(logits, reverse=True))
    weights = mean_weights(p, d, "renormalize")
    c = weights / torch.tensor(p, dtype=torch.float64)
    torch.testing.assert_close(c, torch.tensor(scalar_loops.smoothing(p, d), dtype=torch.float64), rtol=1e-11, atol=0)
    assert all(likelier < less_likely for likelier, less_likely in pairwise(c.tolist()))
    # c preserves the total weight: Σ c_j p_j = 1, so the likeliest key loses and the least likely gains.
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert c[0] < 1 < c[-1]


@settings(deadline=None, max_examples=30)
@given(logits=distinct_logits, d=st.sampled_from(RATIOS))
def test_the_difference_of_two_coefficients_is_equation_4(logits: list[float], d: float) -> None:
    """c_s − c_t = d(1−d) E[1 / (Σ d_j p_j + p_s) − 1 / (Σ d_j p_j + p_t)], sums over j ≠ s, t. The row in which all
    keys are dropped, where Eq. 3 is 0 / 0, cancels: it adds the same d^N to every coefficient."""
    p = distribution(logits)
    c = scalar_loops.smoothing(p, d)
    s, t = 0, 1
    others = p[2:]
    expected = 0.0
    for mask in product((0, 1), repeat=len(others)):
        probability = math.prod(1 - d if kept else d for kept in mask)
        rest = math.fsum(kept * p_j for kept, p_j in zip(mask, others, strict=True))
        expected += probability * (1 / (rest + p[s]) - 1 / (rest + p[t]))
    assert c[s] - c[t] == pytest.approx(d * (1 - d) * expected, rel=1e-9)


def test_the_row_that_loses_all_keys_keeps_its_weights() -> None:
    """The paper leaves this case open. The weights still sum to 1, each c_j grows by d^N, their order is preserved."""
    p, d = distribution([2.0, 0.0, -1.0]), 0.5
    with_case = scalar_loops.smoothing(p, d)
    masks = [mask for mask in product((0, 1), repeat=3) if any(mask)]
    without = [
        sum(0.5**3 * mask[j] / math.fsum(kept * p_j for kept, p_j in zip(mask, p, strict=True)) for mask in masks)
        for j in range(3)
    ]
    for c, rest in zip(with_case, without, strict=True):
        assert c == pytest.approx(rest + d**3, rel=1e-12)
    assert math.fsum(c * p_j for c, p_j in zip(without, p, strict=True)) == pytest.approx(1 - d**3, rel=1e-12)


@pytest.mark.parametrize("d", RATIOS)
def test_equal_keys_are_not_smoothed(d: float) -> None:
    c = mean_weights([0.25] * 4, d, "renormalize") / 0.25
    torch.testing.assert_close(c, torch.ones(4, dtype=torch.float64), rtol=1e-12, atol=0)


def test_more_dropping_smooths_more() -> None:
    """The entropy of the mean weights grows with d (DropKey, Section 4.1.1, on its Fig. 4), while rows that lose all
    their keys, and keep their weights, are rare."""
    entropies = []
    for d in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        weights = mean_weights(distribution([3.0, 1.0, 0.0, -1.0]), d, "renormalize")
        entropies.append(-float((weights * weights.log()).sum()))
    assert all(lower < higher for lower, higher in pairwise(entropies))


@pytest.mark.parametrize("d", RATIOS)
def test_dropout_does_not_smooth(d: float) -> None:
    """With `inverse` every coefficient is 1: Dropout regularizes weights without lowering their peaks."""
    p = distribution([2.0, 0.5, 0.0, -1.0])
    torch.testing.assert_close(mean_weights(p, d, "inverse"), torch.tensor(p, dtype=torch.float64), rtol=1e-12, atol=0)
