"""Dev score over the budget of a sweep."""

from __future__ import annotations

from dropbench.db.statistics.tuning_budget import expected_best
from dropbench.db.tuning.select import Selection


def expected_dev(selection: Selection) -> list[float] | None:
    """Return the expected dev score of the best of k candidates, for k = 1 … n (`db.statistics.tuning_budget`).

    None if the candidates are not a grid or random, as those of other samplers depend on each other, or if some are not
    done or lost.
    """
    scores = [candidate.dev for candidate in selection.candidates if candidate.state == "succeeded"]
    complete = selection.settled and len(scores) == len(selection.candidates) > 1
    if not complete or selection.metric is None or selection.sweep.search.sampler == "tpe":
        return None
    score = selection.metric.score
    return [score(value) for value in expected_best([score(value) for value in scores if value is not None])]
