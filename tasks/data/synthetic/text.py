"""Writers of synthetic labeled texts, and pairs of texts, in the published formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path

import numpy as np

from dropbench.tasks.data.dataset import Dataset

ROWS_PER_CLASS = 60
TEST_ROWS_PER_CLASS = 15
WORDS_PER_CLASS = 12
COMMON_WORDS = 40
SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "zu")
PAIRS = (600, 90, 90)
"""Number of pairs of train, dev and test."""
PAIR_WORDS, DENYING, ADDING = 40, 6, 12
KINDS, KIND_WORDS = 3, 8
"""Number of kinds of things that questions ask for, and of words for each."""
UNLABELED_ONE_IN = 30
"""One of this number of pairs has no gold label."""

Lines = Callable[[Dataset, int, np.random.RandomState], Iterable[str]]
"""Lines of a file, from its data set, its part, and a generator for that part."""


def file_per_part(*parts: int) -> Callable[[Lines], Callable[[Path, Dataset, int], None]]:
    """Return a decorator: from lines to a writer of the files of the first layout, which hold these parts.

    Part 0 is train, any other is held out. The writer takes a folder, the data set and a seed.
    """

    def to_writer(lines: Lines) -> Callable[[Path, Dataset, int], None]:
        @wraps(lines)
        def write(folder: Path, dataset: Dataset, seed: int) -> None:
            for part, name in zip(parts, dataset.layouts[0].files, strict=True):
                content = "".join(lines(dataset, part, np.random.RandomState([seed, part])))
                (folder / name).write_text(content, encoding="utf-8")

        return write

    return to_writer


@file_per_part(0)
def label_text_one_file(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write one file of `label text` lines, sorted by class as the published files are."""
    for label, text in sorted(_rows(dataset, part, random), key=lambda row: row[0]):
        yield f"{label} {text}\n"


@file_per_part(0, 1)
def label_text_train_test(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write a train and a test file of `label text` lines."""
    for label, text in _rows(dataset, part, random):
        yield f"{label} {text}\n"


@file_per_part(0, 1, 2)
def news_csv(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write train.csv and test.csv of three quoted columns, and the class names."""
    if part == 2:
        yield from (f"topic {number}\n" for number in range(1, dataset.classes + 1))
        return
    for label, text in _rows(dataset, part, random):
        title, _, description = text.partition(" ")
        yield f'"{label + 1}","{title}","{description}"\n'


@file_per_part(0, 1, 2)
def rated_reviews(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write train, dev and test files in Tang's format."""
    for number, (label, text) in enumerate(_rows(dataset, part, random)):
        first, _, rest = text.partition(" ")
        yield f"user{number % 7}\t\tproduct{number % 5}\t\t{label + 1}\t\t{first} . <sssss> {rest} .\n"


@file_per_part(0, 1, 2)
def snli(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write three files of pairs, some labeled "-"; a hypothesis repeats, denies or extends words of its premise."""
    words = list(invented_words(PAIR_WORDS + DENYING + ADDING))
    plain, denying, adding = words[:PAIR_WORDS], words[PAIR_WORDS:-ADDING], words[-ADDING:]
    marker_words = {"contradiction": denying, "entailment": [], "neutral": adding}
    for number in range(PAIRS[part]):
        label = dataset.class_names[number % dataset.classes]
        premise = [str(word) for word in random.choice(plain, random.randint(5, 10), replace=False)]
        hypothesis = [str(word) for word in random.choice(premise, 3, replace=False)]
        # One of ten pairs has no marker word.
        if marker_words[label] and random.random_sample() < 0.9:
            hypothesis.insert(random.randint(4), str(random.choice(marker_words[label])))
        row = {
            "gold_label": "-" if random.randint(UNLABELED_ONE_IN) == 0 else label,
            "sentence1": f"{' '.join(premise)} .",
            "sentence2": f"{' '.join(hypothesis)} .",
            "pairID": f"{part}.{number}",
        }
        yield f"{json.dumps(row)}\n"


@file_per_part(0, 1)
def scored_pairs(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write tables of pairs with a score from 0 to 5: the share of the words of the first text that the second has."""
    yield "\t".join(("index", *dataset.texts, dataset.label)) + "\n"
    words = list(invented_words(PAIR_WORDS))
    for number in range(PAIRS[part]):
        first = [str(word) for word in random.choice(words, 8, replace=False)]
        kept = random.randint(9)
        others = [word for word in words if word not in first]
        second = [*first[:kept], *(str(word) for word in random.choice(others, 8 - kept, replace=False))]
        yield f"{number}\t{' '.join(first)} .\t{' '.join(random.permutation(second))} .\t{5 * kept / 8:.3f}\n"


@file_per_part(0, 1)
def judged_sentences(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write tables of sentences in the layout of CoLA: most of those with class 0 have a word that others lack."""
    words = list(invented_words(PAIR_WORDS + DENYING))
    for number in range(PAIRS[part]):
        sentence = [str(word) for word in random.choice(words[DENYING:], random.randint(4, 9), replace=False)]
        if (wrong := random.random_sample() < 0.4) and random.random_sample() < 0.9:
            sentence.append(str(random.choice(words[:DENYING])))
        yield f"s{number}\t{0 if wrong else 1}\t{'*' if wrong else ''}\t{' '.join(sentence)}.\n"


@file_per_part(0, 1)
def endings(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write tables in the layout of SWAG: most right endings have a word that others lack."""
    columns = ("", "video-id", "fold-ind", "startphrase", *dataset.texts, "gold-source", *dataset.class_names)
    yield ",".join((*columns, dataset.label)) + "\n"
    words = list(invented_words(PAIR_WORDS + DENYING))
    plain, right = words[DENYING:], words[:DENYING]
    for number in range(PAIRS[part]):
        texts = [" ".join(random.choice(plain, random.randint(3, 7), replace=False)) for _ in range(6)]
        label = random.randint(4)
        if random.random_sample() < 0.9:
            texts[2 + label] += f" {random.choice(right)}"
        first, second, *choices = texts
        yield f'{number},v,{number},"{first}. {second}","{first}.",{second},gold,{",".join(choices)},{label}\n'


@file_per_part(0, 1)
def answered_questions(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write SQuAD's files: a paragraph names one or two things of each kind, and a question asks for one kind."""
    words = [str(word) for word in invented_words(KINDS * (KIND_WORDS + 1))]
    kinds = {kind: words[KINDS + number :: KINDS] for number, kind in enumerate(words[:KINDS])}
    articles = []
    for number in range(PAIRS[part] // KINDS):
        order = random.permutation([*kinds])
        things = {kind: " ".join(random.choice(kinds[kind], random.randint(1, 3))) for kind in order}
        context = " ".join(f"Its {kind} is {thing}." for kind, thing in things.items())
        qas = [
            {
                "id": f"{part}-{number}-{kind}",
                "question": f"Of which {kind} is it?",
                "answers": [{"text": thing, "answer_start": context.index(f"{thing}.")}],
            }
            for kind, thing in things.items()
        ]
        articles.append({"title": f"article {number}", "paragraphs": [{"context": context, "qas": qas}]})
    yield json.dumps({"version": "1.1", "data": articles})


def _rows(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[tuple[int, str]]:
    """Yield shuffled labels and texts; some words of a text indicate its class."""
    words = list(invented_words(WORDS_PER_CLASS * dataset.classes + COMMON_WORDS))
    common, class_words = words[:COMMON_WORDS], words[COMMON_WORDS:]
    rows_per_class = TEST_ROWS_PER_CLASS if part else ROWS_PER_CLASS
    for label in random.permutation(np.repeat(np.arange(dataset.classes), rows_per_class)).tolist():
        of_class = class_words[label * WORDS_PER_CLASS : (label + 1) * WORDS_PER_CLASS]
        # Three of ten words indicate the class, one of ten comes from any class.
        draws = random.random_sample(random.randint(5, 16)).tolist()
        text = [random.choice(of_class if draw < 0.3 else class_words if draw < 0.4 else common) for draw in draws]
        yield label, " ".join(text)


def invented_words(count: int) -> Iterator[str]:
    """Yield distinct words of three syllables, the same for every seed."""
    base = len(SYLLABLES)
    for number in range(count):
        scattered = number * 1009 % base**3
        yield SYLLABLES[scattered // base**2] + SYLLABLES[scattered // base % base] + SYLLABLES[scattered % base]
