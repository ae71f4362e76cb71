"""Test the reader of SQuAD 1.1 on its official layout made small, and questions of one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dropbench.tasks.data.read import read_any
from dropbench.tasks.data.text.questions import locate_answer
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

CONTEXT = "The  tower is 7 m high.\nIt is a tower."


def official(articles: int, **question: Any) -> bytes:
    """Return a file with articles of two questions; `question` replaces values of the first one."""
    data = []
    for number in range(articles):
        qas: list[dict[str, Any]] = [
            {"id": f"{number}a", "question": "How high?", "answers": [{"text": "7 m", "answer_start": 14}]},
            {"id": f"{number}b", "question": "What is it?", "answers": [{"text": "tower", "answer_start": 32}] * 2},
        ]
        data.append({"title": f"Tower_{number}", "paragraphs": [{"context": CONTEXT, "qas": qas}]})
    data[0]["paragraphs"][0]["qas"][0] |= question  # type: ignore[index]
    return json.dumps({"version": "1.1", "data": data}).encode()


def test_the_official_layout_is_read_and_dev_are_whole_articles(source: WriteSource) -> None:
    data: Any = read_any(source("squad", {"train-v1.1.json": official(20), "dev-v1.1.json": official(3)}))
    assert data.rows() == {"train": 36, "dev": 4, "test": 6}
    assert data.test.contexts[1] == CONTEXT
    assert data.test.answers[:2] == ((("7 m", 14),), (("tower", 32), ("tower", 32)))
    assert data.notes == (
        "test is the official dev set, as the official test set is not public",
        "dev is 10 % of the official train (whole groups, seed 2019)",
    )


def test_an_answer_that_its_context_lacks_is_not_trained(source: WriteSource) -> None:
    other = official(20, answers=[{"text": "8 m", "answer_start": 14}])
    data: Any = read_any(source("squad", {"train-v1.1.json": other, "dev-v1.1.json": other}))
    assert data.rows() == {"train": 35, "dev": 4, "test": 40}
    assert data.notes[2] == "1 question of train-v1.1.json without their answer in the context left out"
    assert data.test.answers[0] == (("8 m", -1),)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"answers": []}, "dev-v1.1.json: question 0a: expected text, or a list with a text and an answer_start"),
        ({"answers": [], "is_impossible": True}, "question 0a: has no answer, as in SQuAD 2.0: expected SQuAD 1.1"),
        ({"answers": [{"text": "7 m"}]}, "question 0a: expected text, or a list with a text and an answer_start"),
        ({"question": 7}, "question 0a: no question, or of another kind: expected the official layout of SQuAD 1.1"),
    ],
)
def test_a_mistake_is_named(source: WriteSource, question: dict[str, Any], message: str) -> None:
    with one_line(message):
        read_any(source("squad", {"train-v1.1.json": official(20), "dev-v1.1.json": official(3, **question)}))


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"data": [1]}', b'{"data": [{"paragraphs": [{"qas": 1}]}]}'])
def test_another_layout_is_an_error_of_one_line(source: WriteSource, content: bytes) -> None:
    with one_line(r"dev-v1.1.json: "):
        read_any(source("squad", {"train-v1.1.json": official(20), "dev-v1.1.json": content}))


@pytest.mark.parametrize(
    ("text", "start", "place"),
    [("tower", None, 5), ("tower", 6, 5), ("tower", 30, 32), ("tower", 99, 32), ("x", 3, -1)],
)
def test_an_answer_is_the_nearest_occurrence(text: str, start: int | None, place: int) -> None:
    assert locate_answer(CONTEXT, text, start) == place


ANSWERS: dict[str, Any] = {
    "text": "tower",
    "texts": ["tower", "a tower"],
    "columns": {"text": ["tower"], "answer_start": [32]},
    "objects": [{"text": "tower", "answer_start": 32}],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_questions_of_ones_own_have_answers_in_any_form(source: WriteSource, kind: str) -> None:
    row = {"q": "What?", "c": CONTEXT, "a": ANSWERS[kind]}
    lines = "".join(json.dumps({**row, "title": f"t{number // 2}"}) + "\n" for number in range(40)).encode()
    card = b"{text: [q, c], answers: a, group: title}"
    data: Any = read_any(source("jsonl", {"all.jsonl": lines, "card.yaml": card}))
    assert (data.kind, data.rows()) == ("question-answering", {"train": 32, "dev": 4, "test": 4})
    assert data.train.answers[0][0] == ("tower", 5 if kind.startswith("text") else 32)
    assert (data.train.contexts[0], "whole groups" in data.notes[0]) == (CONTEXT, True)


def test_mistakes_in_questions_of_ones_own_are_named(source: WriteSource) -> None:
    rows = b"q,c,a\n" + b"How high?,It is 7 m high.,7 m\n" * 12
    card = b"{text: [q, c], answers: a}"
    assert read_any(source("csv", {"a.csv": rows, "card.yaml": card})).rows()["test"] == 1
    with one_line(r"a\.csv:14: a '8 m': not in the c as written"):
        read_any(source("csv", {"a.csv": rows + b"How?,It is 7 m high.,8 m\n", "card.yaml": card}))
    with one_line(r"a\.csv:2: no column 'b' among q, c, a"):
        read_any(source("csv", {"a.csv": rows, "card.yaml": b"{text: [q, c], answers: b}"}))
    with one_line("answers: expected `text: \\[question, context\\]`, and no label"):
        source("csv", {"a.csv": rows, "card.yaml": b"answers: a"})
