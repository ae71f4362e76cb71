"""Floors of tasks on sequences: the most frequent tag or place, a bigram language model, a neighbor's translation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

from dropbench.tasks.data.text.questions import QuestionData
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit
from dropbench.tasks.data.translation.parallel import PairFiles, ParallelText
from dropbench.tasks.floors.floor import Floor
from dropbench.tasks.language.token_cache import CachedTokens, bits_per_byte
from dropbench.tasks.text.question_answering import EXACT_MATCH, answer_scores
from dropbench.tasks.text.sequence_labelling import tag_scores
from dropbench.tasks.text.spec import F1
from dropbench.tasks.text.tokenizer import WORD, split_words
from dropbench.tasks.translation.bleu import Scorer

Tokens = NDArray[Any]


def tag_floors(data: TaggedData) -> list[Floor]:
    """Return the most frequent tag of each word, and of each value of the data's other columns.

    A value that train lacks gets the most frequent tag of all. For the part of speech, this is the baseline of the
    shared task CoNLL-2000.
    """
    floors = []
    for name in ("word", *data.train.columns):
        tags = most_frequent(zip(_flat(_column(data.train, name)), _flat(data.train.tags), strict=True))
        overall = Counter(_flat(data.train.tags)).most_common(1)[0][0]
        predictions = [[tags.get(value, overall) for value in row] for row in _column(data.test, name)]
        scores = tag_scores(list(map(list, data.test.tags)), predictions, spans=data.scored == "spans")
        floors += [Floor(f"most frequent tag of the {name}", metric, value) for metric, value in scores.items()]
    return floors


def most_frequent(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the most frequent second item for each first item of pairs; the first one of several."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for value, tag in pairs:
        counts[value][tag] += 1
    return {value: tags.most_common(1)[0][0] for value, tags in counts.items()}


def _column(split: TaggedSplit, name: str) -> Sequence[Sequence[str]]:
    return split.words if name == "word" else split.columns[name]


def _flat(rows: Iterable[Iterable[str]]) -> Iterable[str]:
    return (value for row in rows for value in row)


def span_floors(data: QuestionData) -> list[Floor]:
    """Return the answers at the most frequent place of those in train: the same words of every context."""
    places = Counter(
        (len(split_words(context[:start])), len(split_words(text)))
        for context, [(text, start), *_] in zip(data.train.contexts, data.train.answers, strict=True)
    )
    [((first, length), _)] = places.most_common(1)
    scores = []
    for context, answers in zip(data.test.contexts, data.test.answers, strict=True):
        words = [*WORD.finditer(context)]
        span = words[first : first + length] or words[:1]
        scores.append(answer_scores(context[span[0].start() : span[-1].end()] if span else "", answers))
    metrics = zip((F1.name, EXACT_MATCH.name), np.mean(scores, axis=0).tolist(), strict=True)
    return [Floor("answer at the most frequent place", metric, value) for metric, value in metrics]


def language_floors(text: CachedTokens, vocabulary: int) -> list[Floor]:
    """Return the bigram model on all tokens of test."""
    loss = -float(np.mean(bigram_log_probs(text.tokens["train"], text.tokens["test"], vocabulary)))
    values = {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
        "bits-per-byte": bits_per_byte(loss, text.sizes["test"]),
    }
    return [Floor("bigrams (Witten-Bell)", metric, value) for metric, value in values.items()]


def bigram_log_probs(train: Tokens, test: Tokens, vocabulary: int) -> NDArray[np.float64]:
    """Return log p(token | previous token) of test, all but its first token (N - 1,), under a model of train.

    Bigrams are interpolated with unigrams (add-one smoothing) by the number of different tokens after the previous
    token (Witten and Bell 1991), so nothing is tuned.
    """
    train, test = (np.asarray(tokens, np.int64) for tokens in (train, test))
    unigrams = (np.bincount(train, minlength=vocabulary) + 1) / (len(train) + vocabulary)
    pairs, counts = np.unique(train[:-1] * vocabulary + train[1:], return_counts=True)
    types = np.bincount(pairs // vocabulary, minlength=vocabulary)
    totals = np.bincount(train[:-1], minlength=vocabulary)
    before, after = test[:-1], test[1:]
    wanted = before * vocabulary + after
    index = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    seen = np.where(pairs[index] == wanted, counts[index], 0)
    prior = np.where(totals[before] == 0, 1, types[before])  # a token without a successor has the unigrams' weight 1
    return np.asarray(np.log((seen + prior * unigrams[after]) / (totals[before] + prior)))


def translation_floors(data: ParallelText) -> list[Floor]:
    """Return the translation of the nearest source sentence of train, by cosine similarity of TF-IDF."""
    sources, targets = zip(*_pairs(data.files["train"]), strict=True)
    queries, references = zip(*_pairs(data.files["test"]), strict=True)
    vectorizer = TfidfVectorizer()
    neighbors = NearestNeighbors(n_neighbors=1, metric="cosine").fit(vectorizer.fit_transform(sources))
    nearest = neighbors.kneighbors(vectorizer.transform(queries), return_distance=False)[:, 0]
    scores = Scorer(data.target, tokenized=data.form == "bpe")([targets[row] for row in nearest], references)
    return [Floor("translation of the nearest source", metric, value) for metric, value in scores.items()]


def _pairs(files: PairFiles) -> Iterable[tuple[str, str]]:
    """Yield the pairs with text on both sides, as words."""
    return (
        (source.replace("@@ ", ""), target.replace("@@ ", "")) for source, target in files.pairs() if source and target
    )
