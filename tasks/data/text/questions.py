"""Questions whose answers are parts of a text, and the reader of SQuAD 1.1 (Rajpurkar et al. 2016).

`train-v1.1.json` and `dev-v1.1.json` are one JSON object each: articles, their paragraphs, and questions with answers.
The official test set is not public, so the official dev set is test, and whole articles of train, 10 %, are dev. The
reader raises InputError, which names the file and the question, for what does not have this form. White space stays as
it is, as answers are found by their positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dropbench.harness.errors import InputError, check_text, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import RowSplit
from dropbench.tasks.data.lines import BYTE_ORDER_MARK, decode_text, read_file
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import ThreeSplits
from dropbench.tasks.data.splits import three_splits

OFFICIAL = "test is the official dev set, as the official test set is not public"
Answers = tuple[tuple[str, int], ...]
"""Answers to a question, one at least: text, and first character in the context; -1: not in it as written."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class QuestionSplit(RowSplit):
    """Questions, the contexts with their answers, and the answers, the first of which is trained."""

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    answers: tuple[Answers, ...]


@dataclass(frozen=True, eq=False)
class QuestionData(ThreeSplits[QuestionSplit]):
    """Questions with answers in a context; attributes as in `Data`."""

    kind: ClassVar[str] = "question-answering"


def locate_answer(context: str, text: str, start: int | None) -> int:
    """Return the first character of an answer: `start` if the answer is there, or else its nearest occurrence; or -1.

    Without a start it is the first occurrence.
    """
    if start is None or not text:
        return context.find(text) if text else -1
    places = context.rfind(text, 0, start + len(text)), context.find(text, max(start, 0))
    return min((place for place in places if place >= 0), key=lambda place: abs(place - start), default=-1)


def answers_of(value: Any, context: str, where: str) -> Answers:
    """Return the answers of a row, which InputError names by `where`.

    Args:
        value: a text, a list of texts, SQuAD's list of objects with ``text`` and ``answer_start``, or an object with a
            list of each.
        context: the text with the answers.
        where: for the error of another value, or of an empty list.
    """
    given = [value] if isinstance(value, str) else value
    if isinstance(value, dict) and value.keys() == {"text", "answer_start"}:
        columns = value["text"], value["answer_start"]
        if all(isinstance(column, list) for column in columns) and len(columns[0]) == len(columns[1]):
            given = [{"text": text, "answer_start": start} for text, start in zip(*columns, strict=True)]
    expected = f"{where}: expected text, or a list with a text and an answer_start for each answer, one at least"
    if not isinstance(given, list) or not given:
        raise InputError(expected)
    answers = []
    for answer in given:
        pair = (answer, None) if isinstance(answer, str) else _pair(answer)
        if pair is None:
            raise InputError(expected)
        check_text(pair[0], where)
        answers.append((pair[0], locate_answer(context, *pair)))
    return tuple(answers)


def _pair(answer: Any) -> tuple[str, int] | None:
    if not isinstance(answer, dict):
        return None
    text, start = answer.get("text"), answer.get("answer_start")
    return (text, start) if isinstance(text, str) and type(start) is int else None


def _get(value: Any, key: str, kind: type[T], where: str) -> T:
    """Return a part of a JSON object; raise InputError unless it is of the kind."""
    part = value.get(key) if isinstance(value, dict) else None
    if not isinstance(part, kind):
        raise InputError(f"{where}: no {key}, or of another kind: expected the official layout of SQuAD 1.1")
    return part


def _questions(path: Path) -> Iterator[tuple[str, str, str, Answers]]:
    """Yield title, question, context and answers."""
    try:
        content = json.loads(decode_text(path, 1, read_file(path).removeprefix(BYTE_ORDER_MARK)))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    for number, article in enumerate(_get(content, "data", list, str(path)), 1):
        title = article.get("title") if isinstance(article, dict) else None
        for paragraph in _get(article, "paragraphs", list, f"{path}: article {number}"):
            context = _get(paragraph, "context", str, f"{path}: article {number}")
            check_text(context, f"{path}: article {number}: context")
            for entry in _get(paragraph, "qas", list, f"{path}: article {number}"):
                where = f"{path}: question {str(entry.get('id') if isinstance(entry, dict) else entry)[:40]}"
                question = _get(entry, "question", str, where)
                check_text(question, where)
                if entry.get("is_impossible"):
                    raise InputError(f"{where}: has no answer, as in SQuAD 2.0: expected SQuAD 1.1")
                yield str(title or number), question, context, answers_of(entry.get("answers"), context, where)


def keep_answered(rows: list[Any], path: Path) -> tuple[list[Any], str]:
    """Return the rows, answers last, whose first answer is in the context as written, and a note on the others."""
    kept = [row for row in rows if row[-1][0][1] >= 0]
    note = f"{count_of(len(rows) - len(kept), 'question')} of {path.name} without their answer in the context left out"
    return kept, note if len(kept) < len(rows) else ""


def read_squad(source: Source) -> QuestionData:
    """Read the two official files."""
    given, notes, titles = dict[Split, Any](), [OFFICIAL], list[str]()
    names: tuple[Split, Split] = ("train", "test")
    for split, path in zip(names, source.files, strict=True):
        rows = [*_questions(path)]
        if split == "train":
            rows, note = keep_answered(rows, path)
            titles, notes = [title for title, *_ in rows], [*notes, *filter(None, [note])]
        if not rows:
            raise InputError(f"{path}: no questions: expected one at least")
        given[split] = question_split(row[1:] for row in rows)
    groups: Mapping[Split, list[str]] = {"train": titles}
    (train, dev, test), carved = three_splits(given, groups=groups, whole="the official train", seed=source.split_seed)
    return QuestionData(source.name, (), train, dev, test, (*notes[:1], carved, *notes[1:]))


def question_split(rows: Any) -> QuestionSplit:
    """Return the split of rows of question, context and answers."""
    return QuestionSplit(*map(tuple, zip(*rows, strict=True)))
