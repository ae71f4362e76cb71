"""Text classification: batches, vocabulary, what is scored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from harness.engine import run_trial
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import TrialRequest
from tasks.text_classification import TextClassification
from tasks.words import PADDING, UNKNOWN, WordTokenizer


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


def test_words_of_train_alone_are_known(task: TextClassification) -> None:
    train = {word for text in task.tokens["train"] for word in text.tolist()}
    assert isinstance(task.tokenizer, WordTokenizer)
    known = task.tokenizer.vocabulary
    assert train <= set(known.values()) | {UNKNOWN}
    assert PADDING not in train
    assert min(known.values()) == UNKNOWN + 1
    assert task.tokenizer.text("unheardof") == [UNKNOWN]
    assert task.tokenizer.text("  ") == [UNKNOWN]


def test_texts_are_cut_and_padded(task: TextClassification) -> None:
    tokens, labels = task.batch("test", range(20))
    assert tokens.shape[0] == labels.shape[0] == 20
    assert tokens.shape[1] <= 6
    for row, text in zip(tokens.tolist(), task.tokens["test"], strict=False):
        assert row == text.tolist() + [PADDING] * (tokens.shape[1] - len(text))


def test_an_epoch_has_every_text_once_in_batches_of_like_length(task: TextClassification) -> None:
    size = 16
    batches = list(task.epoch(size, seed=5))
    assert batches == list(task.epoch(size, seed=5))
    assert batches != list(task.epoch(size, seed=6))
    assert len(batches) == task.steps_an_epoch(size)
    seen = [index for batch in batches for index in batch]
    assert len(seen) == len(set(seen)) == task.size("train") // size * size
    spread = [max(lengths) - min(lengths) for lengths in ([len(task.tokens["train"][i]) for i in b] for b in batches)]
    everything = [len(text) for text in task.tokens["train"]]
    assert sum(spread) / len(spread) < max(everything) - min(everything)


def test_word_dropout_hides_words_in_training_alone() -> None:
    task = make(word_dropout=0.5)
    torch.manual_seed(0)
    plain, (hidden, _) = make(word_dropout=0.0).batch("train", range(100))[0], task.batch("train", range(100))
    real = plain != PADDING
    share = ((hidden == UNKNOWN) & (plain != UNKNOWN))[real].double().mean()
    assert 0.4 < share < 0.6
    assert torch.equal(hidden[~real], plain[~real])
    assert torch.equal(task.batch("test", range(9))[0], make(word_dropout=0.0).batch("test", range(9))[0])


def test_the_score_is_the_share_of_right_answers(task: TextClassification) -> None:
    class Guess(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(torch.zeros(len(tokens), dtype=torch.long), len(task.classes)).double()

    batches = [task.batch("test", part) for part in task.evaluation_batches("test", 7)]
    found = task.evaluate(Guess(), "test", batches)
    wanted = 100 * sum(label == 0 for label in task.labels["test"].tolist()) / task.size("test")
    assert found == {"accuracy": pytest.approx(wanted)}


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_padding_does_not_change_an_answer(task: TextClassification, pooling: str) -> None:
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


def test_it_learns_the_synthetic_set(tmp_path: Any) -> None:
    task = make(epochs=15, lr=3e-3, **{"model.dropout": 0.0, "model.layers": 1, "model.dim": 32})
    directory = RunDirectory.create(tmp_path, task.trial)
    result = run_trial(task.trial, directory, Settings(runs=tmp_path, device="cpu", threads=1))
    chance = 100 / len(task.classes)
    assert result["metrics"]["test/accuracy"] > 3 * chance
