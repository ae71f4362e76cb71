"""Test the floors of classification against scikit-learn called directly, and on sets whose floors are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.svm import LinearSVC

from dropbench.harness.settings import Settings
from dropbench.tasks.data import locate
from dropbench.tasks.data.read import read_any
from dropbench.tasks.floors.linear import image_floors, pair_floors, score_floors, text_floors
from dropbench.tasks.text.tokenizer import split_words


def data_of(name: str) -> Any:
    settings = Settings()
    return read_any(locate(name, settings.data, settings.folders))


def by_name(floors: Any, metric: str = "accuracy") -> dict[str, float]:
    return {floor.name: floor.value for floor in floors if floor.metric == metric}


def tfidf(train: Any, test: Any, longest: int) -> tuple[csr_matrix, csr_matrix]:
    """TF-IDF in two steps; the vocabulary is that of lower-cased words."""
    counts = CountVectorizer(tokenizer=split_words, token_pattern=None, ngram_range=(1, longest))
    weights = TfidfTransformer()
    return weights.fit_transform(counts.fit_transform(train)), weights.transform(counts.transform(test))


def svm_accuracy(train: Any, train_labels: Any, test: Any, test_labels: Any) -> float:
    predicted = LinearSVC(random_state=0).fit(train, train_labels).predict(test)
    return 100 * float(np.mean(predicted == test_labels))


def test_floors_of_texts_equal_scikit_learn() -> None:
    data = data_of("trec-synthetic")
    floors = by_name(text_floors(data))
    majority = np.bincount(data.train.labels).argmax()
    assert floors["majority class"] == pytest.approx(100 * np.mean(data.test.labels == majority))
    for name, longest in (("words", 1), ("words and bigrams", 2)):
        train, test = tfidf(data.train.texts, data.test.texts, longest)
        expected = svm_accuracy(train, data.train.labels, test, data.test.labels)
        assert floors[f"linear SVM on TF-IDF of {name}"] == pytest.approx(expected)
    assert floors["linear SVM on TF-IDF of words"] > floors["majority class"]


def test_floors_are_in_all_metrics_of_the_task() -> None:
    data = data_of("mr-synthetic")
    train, test = tfidf(data.train.texts, data.test.texts, 1)
    predicted = LinearSVC(random_state=0).fit(train, data.train.labels).predict(test)
    majority = np.full_like(data.test.labels, np.bincount(data.train.labels).argmax())
    found = text_floors(data)
    for metric, score in (("f1", f1_score), ("matthews", matthews_corrcoef)):
        values = by_name(found, metric)
        assert values["linear SVM on TF-IDF of words"] == pytest.approx(100 * score(data.test.labels, predicted))
        assert values["majority class"] == pytest.approx(100 * score(data.test.labels, majority))
    assert {floor.metric for floor in pair_floors(data_of("snli-synthetic"))} == {"accuracy", "f1-macro", "matthews"}
    assert {floor.metric for floor in score_floors(data_of("sts-b-synthetic"))} == {"pearson", "spearman"}


def test_floors_of_images_equal_scikit_learn() -> None:
    data = data_of("digits")
    floors = by_name(image_floors(data))
    pixels = [split.images.reshape(len(split), -1).astype(float) for split in data.splits().values()]
    mean, std = pixels[0].mean(axis=0), pixels[0].std(axis=0)
    train, dev, test = ((images - mean) / np.where(std == 0, 1, std) for images in pixels)
    scores: dict[float, float] = {}
    for inverse_penalty in (0.001, 0.01, 0.1, 1.0):
        classifier = LogisticRegression(C=inverse_penalty).fit(train, data.train.labels)
        dev_accuracy = float(np.mean(classifier.predict(dev) == data.dev.labels))
        scores.setdefault(dev_accuracy, 100 * float(np.mean(classifier.predict(test) == data.test.labels)))
    assert floors["logistic regression on pixels"] == pytest.approx(scores[max(scores)])
    assert floors["majority class"] < 20 < floors["logistic regression on pixels"]
