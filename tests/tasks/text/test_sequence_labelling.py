"""Test sequence labeling: features, long sentences, scores."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest
from dropbench.tasks.text.sequence_labelling import UNTAGGED, SequenceLabelling, tag_scores
from dropbench.tasks.text.tokenizer import PADDING, UNKNOWN

DATA = "conll2000-synthetic"


def make(data: str = DATA, folder: Path | None = None, **overrides: Any) -> SequenceLabelling:
    request = TrialRequest(task="sequence-labelling", data=data, model="text-transformer", overrides=overrides)
    settings = Settings(device="cpu", threads=1, folders={data: folder} if folder else {})
    task = TASKS.get("sequence-labelling")(SequenceLabelling.trial_for(request, settings), settings)
    assert isinstance(task, SequenceLabelling)
    task.setup()
    return task


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
    spelled = [[task.features.vocabularies["characters"].get(letter, UNKNOWN) for letter in word] for word in words]
    for row, letters in zip(batch["features"]["characters"][0].tolist(), spelled, strict=True):
        assert row == letters + [PADDING] * (len(row) - len(letters))


def test_an_unknown_feature_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"unknown feature of data 'conll2000-synthetic' 'sufix3'.*suffix3"):
        make(features="sufix3")


def test_masked_words_have_no_features(task: SequenceLabelling) -> None:
    batch = task.batch("dev", range(4))
    masked = task.mask_tokens(batch, 0.5, torch.Generator().manual_seed(0))
    mask = (masked["tokens"] == PADDING) & (batch["tokens"] != PADDING)
    assert mask.any()
    for ids in masked["features"].values():
        assert (ids[mask] == PADDING).all()
    assert torch.equal(masked["tags"], batch["tags"])


def test_correct_tags_score_100_and_wrong_ones_less(task: SequenceLabelling) -> None:
    assert evaluate(task, "test", set()) == dict.fromkeys(("f1", "precision", "recall", "accuracy"), 100.0)
    words = sum(map(len, task.splits["test"].words))
    scores = evaluate(task, "test", {0, words - 1})
    assert scores["accuracy"] == pytest.approx(100 * (words - 2) / words)
    assert scores["f1"] < 100


def test_a_long_sentence_is_tagged_in_parts_and_noted() -> None:
    whole, cut = make(), make(max_length=5)
    assert all(length <= 5 for length in cut.lengths["test"])
    assert sum(cut.lengths["test"]) == sum(whole.lengths["test"])
    long = sum(len(words) > 5 for words in cut.splits["test"].words)
    assert any(note.startswith(f"test: {long} of ") and "max_length=5" in note for note in cut.notes)
    assert evaluate(cut, "test", set()) == evaluate(whole, "test", set())
    wrong = {0}
    assert evaluate(cut, "test", wrong)["accuracy"] == evaluate(whole, "test", wrong)["accuracy"]


def test_parts_of_speech_are_scored_by_accuracy_alone() -> None:
    task = make("ptb-synthetic")
    assert task.selection_metric.name == "accuracy"
    assert set(evaluate(task, "dev", set())) == {"accuracy"}


TAGS = ("O", "B-NP", "I-NP", "B-VP", "I-VP", "I-PP")


def spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """Return spans as conlleval does: a span of a type starts at B, and at I if no span of that type is open."""
    closed: set[tuple[str, int, int]] = set()
    start: int | None = None
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        opened = tags[start].partition("-")[2] if start is not None else None
        if start is not None and (prefix in ("O", "B") or kind != opened):
            closed.add((str(opened), start, position))
            start = None
        if prefix != "O" and start is None:
            start = position
    return closed


SENTENCES = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=9), min_size=1, max_size=4
)


@given(SENTENCES)
def test_f1_equals_an_independent_count(sentences: list[list[tuple[str, str]]]) -> None:
    references = [[tag for tag, _ in sentence] for sentence in sentences]
    predictions = [[tag for _, tag in sentence] for sentence in sentences]
    pairs = [(spans(true), spans(predicted)) for true, predicted in zip(references, predictions, strict=True)]
    correct = sum(len(true & predicted) for true, predicted in pairs)
    num_true, num_predicted = (sum(map(len, side)) for side in zip(*pairs, strict=True))
    precision, recall = correct / num_predicted if num_predicted else 0, correct / num_true if num_true else 0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0
    result = tag_scores(references, predictions, spans=True)
    expected = {"precision": 100 * precision, "recall": 100 * recall, "f1": 100 * f1}
    assert {name: result[name] for name in expected} == pytest.approx(expected)


def test_columns_are_read_with_and_without_empty_lines_at_the_ends(tmp_path: Path) -> None:
    draw = random.Random(0)
    lines = [
        "\n".join(f"w{draw.randrange(9)} NN {tag}" for tag in ("B-NP", "I-NP", "O")[: draw.randrange(1, 4)])
        for _ in range(40)
    ]
    for ends in ("", "\n\n"):
        for name in ("train.txt", "test.txt"):
            (tmp_path / name).write_text(ends + "\n\n".join(lines) + ends, encoding="utf-8")
        task = make("conll2000", tmp_path, min_count=1)
        assert len(task.splits["test"]) == 40


def test_training_learns_the_synthetic_set(tmp_path: Path) -> None:
    model: dict[str, Any] = {"model.dropout": 0.0, "model.layers": 1, "model.dim": 32, "model.heads": 2}
    task = make("ptb-synthetic", epochs=4, batch_size=8, lr=3e-3, features="suffix3", **model)
    tags = [tag for tags in task.splits["test"].tags for tag in tags]
    commonest = 100 * max(map(tags.count, set(tags))) / len(tags)
    directory = RunDirectory.create(tmp_path, task.trial)
    result = run_trial(directory, Settings(runs=tmp_path, device="cpu", threads=1))
    assert result["metrics"]["test/accuracy"] > 2 * commonest
    assert "test/f1" not in result["metrics"]
