"""Test question answering: windows, the tokens of an answer, the best span, and SQuAD's official scores."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropbench.tasks.text.question_answering import QuestionAnswering, answer_scores, answer_tokens, best_span
from dropbench.tasks.text.tokenizer import WordTokenizer
from tests.input_errors import one_line
from tests.tasks.making import task_of, trial_of
from tests.training import run

pytestmark = pytest.mark.usefixtures("cache")


def make(**overrides: Any) -> QuestionAnswering:
    small = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "max_length": 16, "stride": 4, **overrides}
    return task_of(QuestionAnswering, trial_of("question-answering", "squad-synthetic", "text-transformer", small))


def test_windows_of_words_overlap_and_have_all_words() -> None:
    context = "a b c d e f g h i j k l"
    tokenizer = WordTokenizer([context.split()], 1, lowercase=True)
    (windows, cut), (more_windows, more_cut) = tokenizer.encode_windows(["a b", context], [context] * 2, 9, 2)
    assert not cut
    words = [[context[slice(*span)] for span in spans if span] for _, spans in windows]
    assert words == [list("abcdef"), list("efghij"), list("ijkl")]
    assert windows[0][0]["input_ids"][:4] == [2, 3, tokenizer.unknown, 2]
    assert more_cut
    assert all(len(inputs["input_ids"]) <= 9 for inputs, _ in more_windows)
    assert {span for _, spans in more_windows for span in spans if span} == {(2 * n, 2 * n + 1) for n in range(12)}


@pytest.mark.parametrize(
    ("start", "end", "tokens"),
    [(4, 7, (3, 3)), (4, 11, (3, 4)), (5, 6, (3, 3)), (0, 3, (2, 2)), (8, 13, (0, 0)), (-1, 2, (0, 0))],
)
def test_tokens_of_an_answer(start: int, end: int, tokens: tuple[int, int]) -> None:
    spans = [None, None, (0, 3), (4, 7), (8, 11), None]
    assert answer_tokens(spans, start, end) == tokens


def test_the_best_span_is_that_of_all_pairs() -> None:
    draw = np.random.RandomState(0)
    places = np.array([(-1, -1)] * 4 + [(3 * n, 3 * n + 2) for n in range(20)] + [(-1, -1)], np.int32)
    for _ in range(50):
        scores = draw.normal(size=(30, 2)).astype(np.float32)
        pairs = {
            float(scores[first, 0] + scores[last, 1]): (places[first, 0], places[last, 1])
            for first in range(4, 24)
            for last in range(first, min(24, first + 5))
        }
        expected = max(pairs)
        assert best_span(scores, places, 30, 5) == (expected, *pairs[expected])
        some = best_span(scores, places, 3, 5)
        assert some is None or some[0] <= expected
    assert best_span(np.zeros((30, 2), np.float32), np.full((20, 2), -1, np.int32), 20, 30) is None


def normalized(text: str) -> list[str]:
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def official(prediction: str, answers: list[str]) -> tuple[float, float]:
    """Return F1 and exact match by the definition of SQuAD's evaluation, version 1.1."""
    words = normalized

    def f1(answer: str) -> float:
        common = (Counter(words(prediction)) & Counter(words(answer))).total()
        return 2 * common / (len(words(prediction)) + len(words(answer))) if common else 0.0

    return 100 * max(map(f1, answers)), 100 * max(words(prediction) == words(answer) for answer in answers)


def test_scores_are_the_official_ones_on_random_predictions() -> None:
    draw = random.Random(0)
    words = ["The", "the", "a", "An", "tower", "Tower,", "7", "m.", "of", "Paris", "(high)", "l'an"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(400)]
    checked = Counter[bool]()
    for _ in range(400):
        prediction, *answers = draw.sample(texts, 4)
        if not normalized(prediction):
            continue  # of articles alone, which torchmetrics compares as the evaluation of SQuAD 2.0 does
        f1, exact = official(prediction, answers)
        assert answer_scores(prediction, [(answer, 0) for answer in answers]) == pytest.approx((f1, exact), rel=1e-6)
        checked[0 < f1 < 100] += 1
    assert min(checked.values()) > 50


def test_train_is_padded_to_max_length_and_windows_know_their_answers() -> None:
    task = make()
    batch = task.batch("train", [0, 1, 2])
    assert batch["tokens"].shape == (3, 16)
    assert task.batch("dev", [0])["tokens"].shape[1] <= 16
    rows = task.splits["test"]
    found = set()
    for window in task.windows["test"]:
        (text, start), *_ = rows.answers[window.row]
        first, last = window.target
        if last:
            assert (window.places[first, 0], window.places[last, 1]) == (start, start + len(text))
            found.add(window.row)
    assert len(found) > 0.9 * len(rows)
    assert any("contexts are read in several windows of max_length=16" in note for note in task.notes)


def test_a_stride_leaves_room() -> None:
    with one_line("stride=8: expected less than half of max_length=16"):
        make(stride=8)


@pytest.mark.slow
def test_a_model_learns_to_answer(tmp_path: Path) -> None:
    trial = trial_of("question-answering", "squad-synthetic", "text-transformer", {"epochs": 16})
    metrics = run(tmp_path, trial)["metrics"]
    assert metrics["test/f1"] > 75
    assert metrics["test/exact-match"] > 50
