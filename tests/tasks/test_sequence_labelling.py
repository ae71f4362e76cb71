"""Sequence labelling: features, long sentences, what is scored and how."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from harness.engine import run_trial
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import TrialRequest
from tasks.sequence_labelling import UNTAGGED, SequenceLabelling, scores
from tasks.words import PADDING, UNKNOWN

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
    """Gives the right tag to all words but those whose number is in `wrong`, counted over a whole split."""

    def __init__(self, task: SequenceLabelling, split: str, wrong: set[int]) -> None:
        super().__init__()
        self.task, self.split, self.wrong, self.seen = task, split, wrong, 0

    def forward(self, tokens: torch.Tensor, features: Any, first: Any) -> torch.Tensor:
        tags = self.task.current["tags"]  # type: ignore[attr-defined]
        found = tags.clamp(min=0)
        for place in (tags != UNTAGGED).nonzero().tolist():
            if self.seen in self.wrong:
                found[tuple(place)] = (found[tuple(place)] + 1) % len(self.task.classes)
            self.seen += 1
        return nn.functional.one_hot(found, len(self.task.classes)).double()


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
    assert task.weight(batch) == sum(map(len, sentences))
    for row, words in enumerate(sentences):
        tags = [task.classes[tag] for tag in batch["tags"][row, : len(words)].tolist()]
        assert tags == list(task.splits["dev"].tags[(3, 0)[row]])
        assert (batch["tags"][row, len(words) :] == UNTAGGED).all()
        assert (batch["tokens"][row, len(words) :] == PADDING).all()
        for ids in batch["features"].values():
            assert (ids[row, len(words) :] == PADDING).all()
            assert (ids[row, : len(words)].reshape(len(words), -1)[:, 0] != PADDING).all()
    assert batch["features"]["characters"].shape[:2] == (2, longest)


def test_features_are_those_of_the_words(task: SequenceLabelling) -> None:
    words = task.splits["test"].words[0]
    batch = task.batch("test", [0])
    suffixes = task.features["suffix3"]
    assert batch["features"]["suffix3"][0].tolist() == [suffixes.get(word[-3:].lower(), UNKNOWN) for word in words]
    columns = task.splits["test"].columns["pos"][0]
    assert batch["features"]["pos"][0].tolist() == [task.features["pos"].get(value, UNKNOWN) for value in columns]
    spelled = [[task.features["characters"].get(letter, UNKNOWN) for letter in word] for word in words]
    for row, letters in zip(batch["features"]["characters"][0].tolist(), spelled, strict=True):
        assert row == letters + [PADDING] * (len(row) - len(letters))


def test_an_unknown_feature_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"unknown feature of data 'conll2000-synthetic' 'sufix3'.*suffix3"):
        make(features="sufix3")


def test_hidden_words_have_no_features_either(task: SequenceLabelling) -> None:
    batch = task.batch("dev", range(4))
    hidden = task.without_words(batch, 0.5, torch.Generator().manual_seed(0))
    gone = (hidden["tokens"] == PADDING) & (batch["tokens"] != PADDING)
    assert gone.any()
    for ids in hidden["features"].values():
        assert (ids[gone] == PADDING).all()
    assert torch.equal(hidden["tags"], batch["tags"])


def test_right_tags_score_100_and_wrong_ones_less(task: SequenceLabelling) -> None:
    assert evaluate(task, "test", set()) == dict.fromkeys(("f1", "precision", "recall", "accuracy"), 100.0)
    words = sum(map(len, task.splits["test"].words))
    found = evaluate(task, "test", {0, words - 1})
    assert found["accuracy"] == pytest.approx(100 * (words - 2) / words)
    assert found["f1"] < 100


def test_a_sentence_over_the_limit_is_tagged_in_parts_and_counted() -> None:
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
    assert task.selecting.name == "accuracy"
    assert set(evaluate(task, "dev", set())) == {"accuracy"}


TAGS = ("O", "B-NP", "I-NP", "B-VP", "I-VP", "I-PP")


def spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """Spans as conlleval finds them: a span of a type begins at B, and at I where no span of that type is open."""
    found: set[tuple[str, int, int]] = set()
    start: int | None = None
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        opened = tags[start].partition("-")[2] if start is not None else None
        if start is not None and (prefix in ("O", "B") or kind != opened):
            found.add((str(opened), start, place))
            start = None
        if prefix != "O" and start is None:
            start = place
    return found


SENTENCES = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=9), min_size=1, max_size=4
)


@given(SENTENCES)
def test_f1_is_that_of_an_independent_count(sentences: list[list[tuple[str, str]]]) -> None:
    wanted = [[one for one, _ in sentence] for sentence in sentences]
    found = [[other for _, other in sentence] for sentence in sentences]
    pairs = [(spans(one), spans(other)) for one, other in zip(wanted, found, strict=True)]
    right = sum(len(one & other) for one, other in pairs)
    there, given_ = sum(len(one) for one, _ in pairs), sum(len(other) for _, other in pairs)
    precision, recall = right / given_ if given_ else 0, right / there if there else 0
    f1 = 2 * precision * recall / (precision + recall) if right else 0
    result = scores(wanted, found, spans=True)
    expected = {"precision": 100 * precision, "recall": 100 * recall, "f1": 100 * f1}
    assert {name: result[name] for name in expected} == pytest.approx(expected)


def test_columns_are_read_where_there_is_no_empty_line_at_either_end(tmp_path: Path) -> None:
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


def test_it_learns_the_synthetic_set(tmp_path: Path) -> None:
    model: dict[str, Any] = {"model.dropout": 0.0, "model.layers": 1, "model.dim": 32, "model.heads": 2}
    task = make("ptb-synthetic", epochs=4, batch_size=8, lr=3e-3, features="suffix3", **model)
    tags = [tag for tags in task.splits["test"].tags for tag in tags]
    commonest = 100 * max(map(tags.count, set(tags))) / len(tags)
    directory = RunDirectory.create(tmp_path, task.trial)
    result = run_trial(task.trial, directory, Settings(runs=tmp_path, device="cpu", threads=1))
    assert result["metrics"]["test/accuracy"] > 2 * commonest
    assert "test/f1" not in result["metrics"]
