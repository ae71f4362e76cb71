"""Test text classification: batches, vocabulary, scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest
from dropbench.tasks.text.features import pad_features
from dropbench.tasks.text.text_classification import TextClassification
from dropbench.tasks.text.tokenizer import PADDING, UNKNOWN, WordTokenizer, split_words


def make(**overrides: Any) -> TextClassification:
    request = TrialRequest(
        task="text-classification", data="trec-synthetic", model="text-transformer", overrides=overrides
    )
    settings = Settings(device="cpu", threads=1)
    task = TASKS.get("text-classification")(TextClassification.trial_for(request, settings), settings)
    assert isinstance(task, TextClassification)
    task.setup()
    return task


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
    assert task.tokenizer.encode("unheardof") == [UNKNOWN]
    assert task.tokenizer.encode("  ") == [UNKNOWN]


def test_texts_are_truncated_and_padded(task: TextClassification) -> None:
    tokens, labels = task.batch("test", range(20))
    assert tokens.shape[0] == labels.shape[0] == 20
    assert tokens.shape[1] <= 6
    for row, (text,) in zip(tokens.tolist(), task.tokens["test"], strict=False):
        assert row == text.tolist() + [PADDING] * (tokens.shape[1] - len(text))


def test_an_epoch_has_every_text_once_in_batches_of_similar_length(task: TextClassification) -> None:
    size = 16
    batches = list(task.epoch(size, seed=5))
    assert batches == list(task.epoch(size, seed=5))
    assert batches != list(task.epoch(size, seed=6))
    assert len(batches) == task.steps_per_epoch(size)
    indices = [index for batch in batches for index in batch]
    assert len(indices) == len(set(indices)) == task.size("train") // size * size
    all_lengths = [len(text) for (text,) in task.tokens["train"]]
    spread = [max(lengths) - min(lengths) for lengths in ([all_lengths[index] for index in b] for b in batches)]
    assert sum(spread) / len(spread) < max(all_lengths) - min(all_lengths)


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
    masked, _ = task.mask_tokens(((tokens, features), labels), 0.5, torch.Generator().manual_seed(0))
    hidden = (masked[0] == PADDING) & (tokens != PADDING)
    assert hidden.any()
    assert all((ids[hidden] == PADDING).all() for ids in masked[1].values())


def test_a_batch_of_empty_texts_has_features() -> None:
    task = make(features="suffix3,characters")
    features = pad_features([task.text_features(text) for text in ("", " ")])
    assert {name: ids.shape for name, ids in features.items()} == {"suffix3": (2, 1), "characters": (2, 1, 1)}
    tokens = torch.full((2, 1), UNKNOWN)
    assert task.logits(task.build_model(), (tokens, features)).isfinite().all()


def test_features_of_an_unseen_word_are_known() -> None:
    task = make(features="suffix3", min_count=1000)  # every word is out of vocabulary
    (tokens, features), _ = task.batch("dev", range(20))
    assert set(tokens.unique().tolist()) <= {PADDING, UNKNOWN}
    assert features["suffix3"].max() > UNKNOWN


def test_no_features_are_the_default_and_change_no_id() -> None:
    trials = [make(**options).trial for options in ({}, {"features": "none"})]
    assert "features" not in trials[0].recipe
    assert trials[0].recipe == trials[1].recipe


@pytest.mark.parametrize("name", ["sufix3", "pos"])
def test_an_unknown_feature_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown feature of data 'trec-synthetic' '{name}'"):
        make(features=name)


def test_accuracy_is_the_share_of_correct_predictions(task: TextClassification) -> None:
    class Guess(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(torch.zeros(len(tokens), dtype=torch.long), len(task.classes)).double()

    batches = [task.batch("test", part) for part in task.evaluation_batches("test", 7)]
    expected = 100 * sum(label == 0 for label in task.labels["test"].tolist()) / task.size("test")
    assert task.evaluate(Guess(), "test", batches) == {"accuracy": pytest.approx(expected)}


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_padding_does_not_change_the_output(task: TextClassification, pooling: str) -> None:
    torch.manual_seed(0)
    trial = task.trial
    model = type(task)(
        trial.model_copy(update={"recipe": {**trial.recipe, "model": {"pooling": pooling}}}), task.settings
    )
    model.tokenizer, model.classes = task.tokenizer, task.classes
    built = model.build_model().eval()
    tokens = torch.randint(2, 20, (3, 5))
    padded = nn.functional.pad(tokens, (0, 1))
    torch.testing.assert_close(built(tokens), built(padded))


def test_training_learns_the_synthetic_set(tmp_path: Any) -> None:
    task = make(epochs=15, lr=3e-3, **{"model.dropout": 0.0, "model.layers": 1, "model.dim": 32})
    directory = RunDirectory.create(tmp_path, task.trial)
    result = run_trial(directory, Settings(runs=tmp_path, device="cpu", threads=1))
    chance = 100 / len(task.classes)
    assert result["metrics"]["test/accuracy"] > 3 * chance
