"""Test sequence labeling: features, long sentences, scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dropbench.harness.errors import InputError
from dropbench.tasks.text.sequence_labelling import UNTAGGED, SequenceLabelling
from dropbench.tasks.text.tokenizer import PADDING, UNKNOWN
from tests.tasks.making import task_of, trial_of

DATA = "conll2000-synthetic"


def make(data: str = DATA, **overrides: Any) -> SequenceLabelling:
    return task_of(SequenceLabelling, trial_of("sequence-labelling", data, "text-transformer", overrides))


@pytest.fixture(scope="module")
def task() -> SequenceLabelling:
    return make(features="suffix3,case,characters,pos")


class Oracle(nn.Module):
    """A model that tags every word correctly, except for the words whose number in the split is in `wrong`."""

    def __init__(self, task: SequenceLabelling, split: str, wrong: set[int]) -> None:
        super().__init__()
        self.task, self.split, self.wrong, self.num_words = task, split, wrong, 0

    def forward(self, tokens: torch.Tensor, features: Any, first: Any) -> torch.Tensor:
        tags = self.task.current["tags"]  # type: ignore[attr-defined]
        predicted = tags.clamp(min=0)
        for index in (tags != UNTAGGED).nonzero().tolist():
            if self.num_words in self.wrong:
                predicted[tuple(index)] = (predicted[tuple(index)] + 1) % len(self.task.classes)
            self.num_words += 1
        return nn.functional.one_hot(predicted, len(self.task.classes)).double()


def evaluate(task: SequenceLabelling, split: Any, wrong: set[int]) -> dict[str, float]:
    def batches() -> Any:
        for part in task.evaluation_batches(split, 7):
            batch = task.batch(split, part)
            task.current = batch  # type: ignore[attr-defined]
            yield batch

    return task.evaluate(Oracle(task, split, wrong), split, batches())


def test_a_batch_has_a_row_for_each_sentence(task: SequenceLabelling) -> None:
    batch = task.batch("dev", [3, 0])
    sentences = [task.splits["dev"].words[index] for index in (3, 0)]
    longest = max(map(len, sentences))
    assert batch["tokens"].shape == batch["tags"].shape == (2, longest)
    assert task.num_loss_terms(batch) == sum(map(len, sentences))
    for row, words in enumerate(sentences):
        tags = [task.classes[tag] for tag in batch["tags"][row, : len(words)].tolist()]
        assert tags == list(task.splits["dev"].tags[(3, 0)[row]])
        assert (batch["tags"][row, len(words) :] == UNTAGGED).all()
        assert (batch["tokens"][row, len(words) :] == PADDING).all()
        for ids in batch["features"].values():
            assert (ids[row, len(words) :] == PADDING).all()
            assert (ids[row, : len(words)].reshape(len(words), -1)[:, 0] != PADDING).all()
    assert batch["features"]["characters"].shape[:2] == (2, longest)


def test_features_match_the_words(task: SequenceLabelling) -> None:
    words = task.splits["test"].words[0]
    batch = task.batch("test", [0])
    suffixes = task.features.vocabularies["suffix3"]
    assert batch["features"]["suffix3"][0].tolist() == [suffixes.get(word[-3:].lower(), UNKNOWN) for word in words]
    columns = task.splits["test"].columns["pos"][0]
    assert batch["features"]["pos"][0].tolist() == [
        task.features.vocabularies["pos"].get(value, UNKNOWN) for value in columns
    ]
    with pytest.raises(InputError, match=r"unknown feature of data 'conll2000-synthetic' 'sufix3'.*suffix3"):
        make(features="sufix3")
    spelled = [[task.features.vocabularies["characters"].get(letter, UNKNOWN) for letter in word] for word in words]
    for row, letters in zip(batch["features"]["characters"][0].tolist(), spelled, strict=True):
        assert row == letters + [PADDING] * (len(row) - len(letters))


def test_masked_words_have_no_features(task: SequenceLabelling) -> None:
    batch = task.batch("dev", range(4))
    masked = task.mask_tokens(batch, 0.5, torch.Generator().manual_seed(0))
    mask = (masked["tokens"] == PADDING) & (batch["tokens"] != PADDING)
    assert mask.any()
    for ids in masked["features"].values():
        assert (ids[mask] == PADDING).all()
    assert torch.equal(masked["tags"], batch["tags"])


def test_a_long_sentence_is_tagged_in_parts_and_noted() -> None:
    whole, cut = make(), make(max_length=5)
    assert all(length <= 5 for length in cut.lengths["test"])
    assert sum(cut.lengths["test"]) == sum(whole.lengths["test"])
    long = sum(len(words) > 5 for words in cut.splits["test"].words)
    assert any(note.startswith(f"test: {long} of ") and "max_length=5" in note for note in cut.notes)
    assert evaluate(cut, "test", set()) == evaluate(whole, "test", set())
    assert evaluate(cut, "test", {0})["accuracy"] == evaluate(whole, "test", {0})["accuracy"]
