"""Floors of classification and regression: the majority class, and linear models of scikit-learn on TF-IDF or pixels.

The classifiers have scikit-learn's defaults, except for the regularization of pixels, which is chosen on dev.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import hstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dropbench.tasks.class_metrics import CLASS_METRICS, class_scores, score_correlations
from dropbench.tasks.classifier import ACCURACY
from dropbench.tasks.data.classification import (
    ChoiceData,
    ImageClassificationData,
    LabeledSplit,
    TextClassificationData,
)
from dropbench.tasks.data.text.scored import ScoredData
from dropbench.tasks.data.text.snli import PairData
from dropbench.tasks.floors.floor import Floor
from dropbench.tasks.text.tokenizer import split_words

Classes = NDArray[np.int64]
NGRAMS = {"words": 1, "words and bigrams": 2}
"""The longest n-gram of each TF-IDF floor."""
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)
"""Candidates for `LogisticRegression.C`."""


def text_floors(data: TextClassificationData) -> list[Floor]:
    """Return the majority class, and linear SVMs on TF-IDF, in all metrics of classes."""
    texts = {name: (split.texts,) for name, split in data.splits().items()}
    return _floors(_tfidf(texts, data.splits()), data, CLASS_METRICS)


def pair_floors(data: PairData) -> list[Floor]:
    """Return the same for pairs, with the TF-IDF of the premise beside that of the hypothesis."""
    texts = {name: (split.premises, split.hypotheses) for name, split in data.splits().items()}
    return _floors(_tfidf(texts, data.splits()), data, CLASS_METRICS)


def choice_floors(data: ChoiceData) -> list[Floor]:
    """Return the majority class, and the choice that a linear SVM on TF-IDF of all choices finds most like right ones.

    It reads the choices alone, not the texts: what it finds are marks of right answers in themselves.
    """
    choices = {name: [*chain.from_iterable(split.choices)] for name, split in data.splits().items()}
    right = np.eye(len(data.classes), dtype=int)[data.train.labels].ravel()
    vectorizer = TfidfVectorizer(tokenizer=split_words, token_pattern=None)
    classifier = LinearSVC(random_state=0).fit(vectorizer.fit_transform(choices["train"]), right)
    scores = classifier.decision_function(vectorizer.transform(choices["test"])).reshape(-1, len(data.classes))
    return _floors({"linear SVM on TF-IDF of a choice": scores.argmax(axis=1)}, data)


def score_floors(data: ScoredData) -> list[Floor]:
    """Return ridge regression on the TF-IDF of texts, and for pairs the cosine of their TF-IDF, too."""
    train, test = (list(zip(*split.texts, strict=True)) for split in (data.train, data.test))
    vectorizer = TfidfVectorizer(tokenizer=split_words, token_pattern=None).fit(chain(*train))
    fitted, scored = (hstack([vectorizer.transform(texts) for texts in split]) for split in (train, test))
    predictions = {"ridge regression on TF-IDF": Ridge(random_state=0).fit(fitted, data.train.scores).predict(scored)}
    if len(test) > 1:
        first, second = (vectorizer.transform(texts) for texts in test)  # of norm 1
        predictions["cosine of TF-IDF"] = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return [
        Floor(name, metric, value)
        for name, scores in predictions.items()
        for metric, value in score_correlations(data.test.scores.tolist(), scores.tolist()).items()
    ]


def image_floors(data: ImageClassificationData) -> list[Floor]:
    """Return the majority class, and logistic regression on standardized pixels if the images have one size."""
    splits = data.splits()
    pixels = {name: split.images for name, split in splits.items()}
    if not all(isinstance(images, np.ndarray) for images in pixels.values()):
        return _floors({}, data)  # files of any size
    flat = {name: np.asarray(images).reshape(len(images), -1) / 255.0 for name, images in pixels.items()}
    scaler = StandardScaler().fit(flat["train"])
    scaled = {name: scaler.transform(images) for name, images in flat.items()}
    with warnings.catch_warnings():
        # With thousands of pixels, 100 iterations do not converge; stopping there generalizes no worse.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [LogisticRegression(C=c).fit(scaled["train"], splits["train"].labels) for c in INVERSE_PENALTIES]
    best = max(fitted, key=lambda classifier: classifier.score(scaled["dev"], splits["dev"].labels))
    return _floors({"logistic regression on pixels": best.predict(scaled["test"])}, data)


def _tfidf(texts: Mapping[str, Sequence[Sequence[str]]], splits: Mapping[str, LabeledSplit]) -> dict[str, Classes]:
    """Return predictions for texts by split; a split has one sequence of texts, or two for pairs."""
    predictions = {}
    for name, longest in NGRAMS.items():
        train, test = [], []
        for fitted, scored in zip(texts["train"], texts["test"], strict=True):
            vectorizer = TfidfVectorizer(tokenizer=split_words, token_pattern=None, ngram_range=(1, longest))
            train.append(vectorizer.fit_transform(fitted))
            test.append(vectorizer.transform(scored))
        classifier = LinearSVC(random_state=0).fit(hstack(train), splits["train"].labels)
        predictions[f"linear SVM on TF-IDF of {name}"] = classifier.predict(hstack(test))
    return predictions


def _floors(predictions: Mapping[str, Classes], data: Any, metrics: Collection[str] = ()) -> list[Floor]:
    """Return the floors of the majority class and of predicted classes: accuracy, and those of `metrics` that fit."""
    targets, classes = data.test.labels, len(data.classes)
    majority = np.full(len(targets), np.bincount(data.train.labels).argmax())
    fitting = [metric for metric in metrics if metric != "f1" or classes == 2]
    floors = []
    for name, predicted in {"majority class": majority, **predictions}.items():
        scores = class_scores(fitting, targets.tolist(), predicted.tolist(), classes)
        scores[ACCURACY.name] = 100.0 * float(np.mean(predicted == targets))
        floors += [Floor(name, metric, value) for metric, value in scores.items()]
    return floors
