"""False positives of `compare` on simulated campaigns in which no regularizer has an effect."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.database import campaign
from db.queries.compare import compare, read_sides
from db.schema.connection import reading
from db.store.store import Store

CAMPAIGNS = 2000
SIDES = ("regularizer=dropout", "regularizer=dropkey")


@pytest.mark.slow
@pytest.mark.parametrize("items", [None, 359])
def test_after_holm_one_campaign_of_twenty_has_a_false_positive(store: Store, items: int | None) -> None:
    """Of 30 comparisons over five seeds; `items`: accuracies on this number of examples, which often coincide."""
    store.enqueue(campaign.trials(750))
    campaign.finish(store)
    with reading(store.engine) as connection:
        sides = read_sides([(connection, [words]) for words in SIDES], ["accuracy"])
    generator = np.random.default_rng(0)
    wrong = uncorrected = 0
    for _ in range(CAMPAIGNS):
        for side in sides:
            for seeds in side.values["accuracy"].values():
                drawn = generator.normal(80, 2, len(seeds)) if items is None else None
                counts = generator.binomial(items or 1, 0.8, len(seeds)) if drawn is None else drawn
                values = counts if items is None else 100 * counts / items
                seeds.update(zip(seeds, values.tolist(), strict=True))
        rows = compare(*sides)
        assert len(rows) == 30
        wrong += any(row["verdict"] in ("better", "worse") for row in rows)
        uncorrected += any(row["p_value"] is not None and row["p_value"] < 0.05 for row in rows)
    assert wrong / CAMPAIGNS <= 0.05 + 0.01
    assert uncorrected / CAMPAIGNS > 0.7, "without the correction, most campaigns have one"
