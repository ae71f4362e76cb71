"""Test text classification: batches, vocabulary, scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dropbench.tasks.text.features import pad_features
from dropbench.tasks.text.text_classification import TextClassification
from dropbench.tasks.text.tokenizer import PADDING, UNKNOWN, WordTokenizer, split_words
from tests.tasks.making import task_of, trial_of


def make(**overrides: Any) -> TextClassification:
    trial = trial_of("text-classification", "trec-synthetic", "text-transformer", overrides)
    return task_of(TextClassification, trial)


@pytest.fixture(scope="module")
def task() -> TextClassification:
    return make(max_length=6, min_count=2)


def test_the_vocabulary_is_the_words_of_train(task: TextClassification) -> None:
    train = {word for (text,) in task.tokens["train"] for word in text.tolist()}
    assert isinstance(task.tokenizer, WordTokenizer)
    ids = task.tokenizer.vocabulary.values()
    assert train <= {*ids, UNKNOWN}
    assert PADDING not in train
    assert min(ids) == UNKNOWN + 1
    assert task.tokenizer.encode(["unheardof", "  "]) == [[UNKNOWN], [UNKNOWN]]


def test_texts_are_truncated_and_padded(task: TextClassification) -> None:
    tokens, labels = task.batch("test", range(20))
    assert tokens.shape[0] == labels.shape[0] == 20
    assert tokens.shape[1] <= 6
    for row, (text,) in zip(tokens.tolist(), task.tokens["test"], strict=False):
        assert row == text.tolist() + [PADDING] * (tokens.shape[1] - len(text))


@pytest.mark.parametrize("overrides", [{}, {"order": "random"}])
def test_an_epoch_has_every_text_once_in_batches_of_similar_length_or_random_ones(overrides: dict[str, Any]) -> None:
    task, size = make(**overrides), 16
    batches = list(task.epoch(size, seed=5))
    assert batches == list(task.epoch(size, seed=5))
    assert batches != list(task.epoch(size, seed=6))
    assert len(batches) == task.steps_per_epoch(size)
    indices = [index for batch in batches for index in batch]
    assert len(indices) == len(set(indices)) == task.size("train") // size * size
    all_lengths = [len(text) for (text,) in task.tokens["train"]]
    spread = [max(lengths) - min(lengths) for lengths in ([all_lengths[index] for index in b] for b in batches)]
    share = sum(spread) / len(spread) / (max(all_lengths) - min(all_lengths))
    assert share > 0.6 if overrides else share < 0.2


def test_word_dropout_is_applied_only_in_training() -> None:
    task = make(word_dropout=0.5)
    torch.manual_seed(0)
    plain, (hidden, _) = make(word_dropout=0.0).batch("train", range(100))[0], task.batch("train", range(100))
    real = plain != PADDING
    share = ((hidden == UNKNOWN) & (plain != UNKNOWN))[real].double().mean()
    assert 0.4 < share < 0.6
    assert torch.equal(hidden[~real], plain[~real])
    assert torch.equal(task.batch("test", range(9))[0], make(word_dropout=0.0).batch("test", range(9))[0])


def test_features_are_those_of_the_words_up_to_the_maximum_length() -> None:
    task = make(max_length=6, features="suffix3,case,characters")
    (tokens, features), labels = task.batch("test", range(9))
    assert torch.equal(labels, task.labels["test"][:9])
    for index, text in enumerate(task.texts["test"].texts[:9]):
        words = split_words(text)[:6]
        assert task.word_features.encode(words)["suffix3"].tolist() == features["suffix3"][index, : len(words)].tolist()
        for ids in features.values():
            assert (ids[index].reshape(tokens.shape[1], -1)[:, 0] != PADDING).tolist() == (tokens[index] != 0).tolist()
    empty = pad_features([task.text_features(text) for text in ("", " ")])
    assert {name: ids.shape for name, ids in empty.items()} == {
        "suffix3": (2, 1),
        "case": (2, 1),
        "characters": (2, 1, 1),
    }
    assert task.logits(task.build_model(), (torch.full((2, 1), UNKNOWN), empty)).isfinite().all()
    masked, _ = task.mask_tokens(((tokens, features), labels), 0.5, torch.Generator().manual_seed(0))
    hidden = (masked[0] == PADDING) & (tokens != PADDING)
    assert hidden.any()
    assert all((ids[hidden] == PADDING).all() for ids in masked[1].values())
