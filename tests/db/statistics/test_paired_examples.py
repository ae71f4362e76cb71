"""Paired tests over examples, compared with statsmodels, scipy and sacrebleu."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap

from dropbench.db.statistics import paired_examples
from dropbench.db.statistics.paired_examples import mcnemar, paired_bootstrap

RNG = np.random.default_rng(0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_mcnemar_is_that_of_statsmodels(pairs: list[tuple[bool, bool]]) -> None:
    statsmodels = pytest.importorskip("statsmodels.stats.contingency_tables")
    a, b = map(list, zip(*pairs, strict=True))
    test = mcnemar(a, b)
    table = [[sum(x and y for x, y in pairs), test.only_a], [test.only_b, sum(not (x or y) for x, y in pairs)]]
    if test.only_a + test.only_b:
        assert test.p == pytest.approx(statsmodels.mcnemar(table, exact=True).pvalue, rel=1e-9)
    else:
        assert test.p == 1.0
    assert test.difference == pytest.approx(np.mean(a) - np.mean(b), abs=1e-12)


@pytest.mark.parametrize("shape", [(40,), (40, 3)])
def test_the_interval_is_scipys(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draw the same examples from the same generator; `total` is a corpus metric of counts if there are any."""
    a, b = RNG.normal(1, 1, shape), RNG.normal(0, 1, shape)

    def total(scores: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        result: NDArray[np.float64] = np.log1p(np.abs(scores.sum(axis))).reshape(len(scores), -1).sum(1)
        return result

    ours = paired_bootstrap(a, b, total, draws=999, seed=7)
    monkeypatch.setattr(paired_examples, "MAX_BATCH", 10 * a.size)
    assert paired_bootstrap(a, b, total, draws=999, seed=7) == ours, "it depends on the size of the batches"

    def difference(index: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        return total(a[index.reshape(-1, len(a))], 1) - total(b[index.reshape(-1, len(a))], 1)

    theirs = bootstrap(
        (np.arange(len(a)),), difference, n_resamples=999, method="percentile", vectorized=True,
        rng=np.random.default_rng(7),
    )  # fmt: skip
    assert [ours.low, ours.high] == pytest.approx([*theirs.confidence_interval], rel=1e-9)


def test_its_p_value_is_close_to_students() -> None:
    from scipy.stats import ttest_rel

    a, b = RNG.normal(0.15, 1, 400), RNG.normal(0, 1, 400)
    assert paired_bootstrap(a, b).p == pytest.approx(ttest_rel(a, b).pvalue, abs=0.02)


def test_bleu_of_a_corpus_as_sacrebleu_tests_it() -> None:
    """From the counts of each sentence."""
    bleu_module = pytest.importorskip("sacrebleu.metrics")
    references = [[f"the cat number {n} sat on the mat near {n % 7} dogs in house {n % 5}" for n in range(60)]]
    hypotheses = [
        [text.replace("sat", "sits") if n % 3 else text for n, text in enumerate(references[0])],
        [text.replace("near", "by").replace("dogs", "dog") if n % 4 else text for n, text in enumerate(references[0])],
    ]
    metric = bleu_module.BLEU(references=references)
    a, b = (np.array(metric._extract_corpus_statistics(texts, None), dtype=float) for texts in hypotheses)

    def bleu(stats: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.array([metric._compute_score_from_stats(row.tolist()).score for row in stats.sum(axis)])

    test = paired_bootstrap(a, b, bleu, draws=200)
    scores = [metric.corpus_score(texts, None).score for texts in hypotheses]
    assert test.difference == pytest.approx(scores[0] - scores[1], abs=1e-9)
    assert test.low < test.difference < test.high


def test_equal_scores_do_not_differ() -> None:
    scores = RNG.random(50)
    test = paired_bootstrap(scores, scores, draws=100)
    assert (test.difference, test.low, test.high, test.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 0.0])])
def test_other_examples_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="expected one shape"):
        mcnemar(a, b)
    with pytest.raises(ValueError, match="expected one shape"):
        paired_bootstrap(a, b)
