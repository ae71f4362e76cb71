"""Synthetic tagged sentences and sentence pairs: learnable, but not from the most frequent label alone."""

from __future__ import annotations

from collections import Counter

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from dropbench.tasks.data import DATASETS, locate, read
from dropbench.tasks.data.text.snli import PairData
from dropbench.tasks.data.text.tagged import TaggedData

TAGGED = [name for name in DATASETS if (dataset := DATASETS.get(name)).synthetic and dataset.kind == TaggedData.kind]


def accuracy(data: TaggedData, context: bool) -> float:
    """Return the accuracy of each word's most frequent tag in train; with context, of that after the previous tag."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    most_frequent = Counter(tag for tags in data.train.tags for tag in tags).most_common(1)[0][0]
    for words, tags in zip(data.train.words, data.train.tags, strict=True):
        for word, tag, previous in zip(words, tags, ("", *tags), strict=False):
            for key in ((word, ""), (word, previous)):
                counts.setdefault(key, Counter())[tag] += 1
    hits = []
    for words, tags in zip(data.test.words, data.test.tags, strict=True):
        previous = ""
        for word, tag in zip(words, tags, strict=True):
            counter = (
                counts.get((word, previous if context else "")) or counts.get((word, "")) or Counter([most_frequent])
            )
            previous = counter.most_common(1)[0][0]
            hits.append(previous == tag)
    return sum(hits) / len(hits)


@pytest.mark.parametrize("name", TAGGED)
def test_words_predict_tags_and_do_better_with_the_previous_tag(name: str) -> None:
    data = read(locate(f"{name}-synthetic"), TaggedData)
    most_frequent = max(data.class_rows()["test"].values()) / data.tokens()["test"]
    assert most_frequent < 0.6
    assert most_frequent + 0.15 < accuracy(data, context=False) < accuracy(data, context=True)
    assert accuracy(data, context=True) > 0.85


@pytest.mark.parametrize("name", [name for name in TAGGED if name not in ("ptb", "ud-ewt")])
def test_spans_of_every_type_some_of_several_words(name: str) -> None:
    data = read(locate(f"{name}-synthetic"), TaggedData)
    assert data.scored == "spans"
    for split in data.splits().values():
        spans = [span for tags in split.tags for span in get_entities(list(tags))]
        assert {kind for kind, _, _ in spans} == {tag[2:] for tag in data.classes if tag != "O"}
        assert {end - start for _, start, end in spans} == {0, 1, 2}


def test_the_twin_of_conll2003_has_both_tags_of_iob1_and_documents() -> None:
    data = read(locate("conll2003-synthetic"), TaggedData)
    assert "tags: IOB1, trained and scored as BIO" in data.notes
    text = locate("conll2003-synthetic").files[0].read_text()
    assert " B-" in text
    assert data.left_out["rows"]["train"] == text.count("-DOCSTART-") == 12


def test_the_hypothesis_predicts_the_label() -> None:
    data = read(locate("snli-synthetic"), PairData)
    words = CountVectorizer()
    model = MultinomialNB().fit(words.fit_transform(data.train.hypotheses), data.train.labels)
    assert (model.predict(words.transform(data.test.hypotheses)) == data.test.labels).mean() > 0.8
    assert data.left_out["rows"]["train"] > 0


@pytest.mark.parametrize("name", TAGGED)
def test_the_columns_are_those_that_are_known_before_a_set_is_read(name: str) -> None:
    for split in read(locate(f"{name}-synthetic"), TaggedData).splits().values():
        assert tuple(split.columns) == DATASETS.get(name).columns
