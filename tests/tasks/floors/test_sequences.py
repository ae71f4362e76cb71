"""Test the floors of tagging, language modeling and translation."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import OneHotEncoder

from dropbench.tasks.floors.sequences import bigram_log_probs, tag_floors, translation_floors
from dropbench.tasks.translation.bleu import Scorer
from tests.tasks.floors.test_linear import data_of


def test_most_frequent_tag_equals_scikit_learn() -> None:
    data = data_of("conll2000-synthetic")
    words, tags = ([value for row in rows for value in row] for rows in (data.train.words, data.train.tags))
    test_words, test_tags = ([value for row in rows for value in row] for rows in (data.test.words, data.test.tags))
    # Without smoothing, naive Bayes chooses the most frequent tag of the word; the prior decides on unknown words.
    encoder = OneHotEncoder(handle_unknown="ignore").fit(np.reshape(words, (-1, 1)))
    classifier = MultinomialNB(alpha=1e-10).fit(encoder.transform(np.reshape(words, (-1, 1))), tags)
    expected = accuracy_score(test_tags, classifier.predict(encoder.transform(np.reshape(test_words, (-1, 1)))))
    floors = {(floor.name, floor.metric): floor.value for floor in tag_floors(data)}
    assert floors["most frequent tag of the word", "accuracy"] == pytest.approx(100 * expected, abs=0.5)
    assert {name for name, _ in floors} == {"most frequent tag of the word", "most frequent tag of the pos"}
    assert "f1" in {metric for _, metric in floors}


TOKENS = st.lists(st.integers(0, 5), min_size=3, max_size=60)


@given(TOKENS, TOKENS)
def test_bigram_model_is_witten_and_bells(train: list[int], test: list[int]) -> None:
    def probability(before: int, after: int) -> float:
        followers = Counter(second for first, second in pairwise(train) if first == before)
        unigram = (train.count(after) + 1) / (len(train) + 6)
        if not followers:
            return unigram
        return (followers[after] + len(followers) * unigram) / (followers.total() + len(followers))

    expected = [math.log(probability(*pair)) for pair in pairwise(test)]
    assert bigram_log_probs(np.array(train, np.uint16), np.array(test, np.uint16), 6) == pytest.approx(expected)
    total = sum(probability(train[0], after) for after in range(6))
    assert total == pytest.approx(1)


def test_translation_is_that_of_the_nearest_source() -> None:
    data = data_of("multi30k-synthetic")
    train, test = (list(data.files[split].pairs()) for split in ("train", "test"))
    vectorizer = TfidfVectorizer().fit([source for source, _ in train])
    similarity: Any = cosine_similarity(
        *(vectorizer.transform([source for source, _ in rows]) for rows in (test, train))
    )

    expected = Scorer(data.target, tokenized=False)(
        [train[row][1] for row in similarity.argmax(axis=1)], [target for _, target in test]
    )
    assert {floor.metric: floor.value for floor in translation_floors(data)} == pytest.approx(expected, abs=0.5)
