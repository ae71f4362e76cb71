"""Measures of attention weights against float64 loops over scalars, from the sources' formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dropbench.harness.analysis import measures
from dropbench.harness.seeding import random_subset


def attention(seed: int, batch: int, heads: int, queries: int, keys: int, lengths: list[int] | None = None) -> Tensor:
    """Return weights (B, H, T, S) in float64. Keys beyond `lengths`, if given, are padding."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, heads, queries, keys, generator=generator, dtype=torch.float64) * 2
    for sample, length in enumerate(lengths or []):
        logits[sample, :, :, length:] = float("-inf")
    return logits.softmax(-1)


def test_known_values() -> None:
    uniform = torch.full((1, 2, 1, 4), 0.25, dtype=torch.float64)
    assert measures.entropy(uniform).flatten().tolist() == pytest.approx([math.log(4)] * 2)
    assert float(measures.disagreement(uniform)) == pytest.approx(1.0)
    assert float(measures.diversity(uniform)) == pytest.approx(2 * 0.75**2 + 2 * 0.25**2)
    one_hot = torch.eye(4, dtype=torch.float64)[:2].view(1, 2, 1, 4)
    assert measures.entropy(one_hot).tolist() == [[[0.0], [0.0]]]
    assert float(measures.diversity(one_hot)) == 0.0
    assert float(measures.disagreement(one_hot)) == pytest.approx(0.5)


def test_a_key_that_no_query_attends_to_is_padding() -> None:
    weights = attention(1, 3, 2, 5, 5, [5, 2, 1])
    keys = measures.real_keys(weights)
    assert keys.sum(1).tolist() == [5, 2, 1]
    assert torch.equal(measures.real_queries(weights, "encoder-self"), keys)
    assert measures.real_queries(weights, "cross").all()
    assert measures.lengths(weights, "encoder-self")[:, 0].tolist() == [5, 2, 1]


def test_the_length_of_a_decoder_query_is_its_number_of_visible_keys() -> None:
    logits = torch.zeros(1, 1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
    weights = logits.softmax(-1)
    assert measures.lengths(weights, "decoder-self").tolist() == [[1, 2, 3, 4]]
    assert measures.largest(weights, measures.lengths(weights, "decoder-self")).flatten().tolist() == [1, 1, 1, 1]


def test_nan_is_not_padding() -> None:
    weights = attention(2, 1, 2, 3, 3)
    weights[0, 1, 2, 0] = float("nan")
    assert measures.real_keys(weights).all()
    for values in (measures.entropy(weights)[:, 1], measures.diversity(weights), measures.disagreement(weights)):
        assert values.isnan().tolist() == [[False, False, True]]


def test_low_precision_is_measured_in_float32() -> None:
    weights = attention(3, 1, 2, 3, 50).to(torch.bfloat16)
    assert measures.entropy(weights).dtype == torch.float32
    assert torch.equal(measures.diversity(weights), measures.diversity(weights.float()))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_a_random_subset_has_the_requested_share_but_never_every_eligible_position(share: float) -> None:
    eligible = torch.arange(20)[None] < torch.tensor([[20], [7], [2], [1]])
    drawn = random_subset(eligible, share, torch.Generator().manual_seed(0))
    assert not (drawn & ~eligible).any()
    assert drawn.sum(1).tolist() == [min(round(length * share), length - 1) for length in (20, 7, 2, 1)]
