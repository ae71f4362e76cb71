"""Yelp 2013 in Tang's format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from tasks.data import read
from tasks.data.classification import TextClassificationData
from tasks.data.text.labeled_text import read_reviews

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource

PUBLISHED = (
    "user-1\t\tproduct-1\t\t5\t\tmy wife took me here . <sssss> the weather was perfect .\n"
    "user-2\t\tproduct-2\t\t1\t\tcafé closed !\n"
)


def rows_of(path: Path) -> list[tuple[int, str]]:
    split, _ = read_reviews(path, 5)
    return list(zip(split.labels.tolist(), split.texts, strict=True))


def test_rows_as_published(tmp_path: Path) -> None:
    (tmp_path / "yelp").write_text(PUBLISHED, encoding="utf-8")
    assert rows_of(tmp_path / "yelp") == [
        (4, "my wife took me here . the weather was perfect ."),
        (0, "café closed !"),
    ]


CHARACTERS = st.characters(exclude_characters="\0\n<", exclude_categories=["Cs"])
SENTENCE = st.text(CHARACTERS, min_size=1).filter(lambda text: text.split())


@given(st.lists(st.tuples(st.integers(1, 5), st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=8))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, list[str]]]) -> None:
    path = tmp_path_factory.mktemp("reviews") / "yelp"
    lines = [f"user\t\tproduct\t\t{rating}\t\t{' <sssss> '.join(sentences)}\n" for rating, sentences in rows]
    path.write_bytes("".join(lines).encode())
    assert rows_of(path) == [(rating - 1, " ".join(" ".join(sentences).split())) for rating, sentences in rows]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("u\t\tp\t\t6\t\ttext", "label '6': expected a number from 1 to 5"),
        ("u\t\tp\t\t0\t\ttext", "label '0': expected a number from 1 to 5"),
        ("u\t\tp\t\tgood\t\ttext", "label 'good'"),
        ("u\t\tp\t\t3", "3 fields: expected user, product, rating, text"),
        ("u\tp\t3\ttext", "1 field: expected user, product, rating, text"),
        ("", "1 field: "),
    ],
)
def test_a_line_that_does_not_parse_is_reported_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "yelp"
    path.write_text(f"u\t\tp\t\t3\t\tfine\n{line}\nu\t\tp\t\t3\t\tfine\n")
    with pytest.raises(InputError, match=f"yelp:2: {message}"):
        read_reviews(path, 5)


def test_another_encoding_is_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "yelp"
    path.write_bytes(PUBLISHED.encode("latin-1"))
    with pytest.raises(InputError, match=r"yelp:2: byte 0xe9 is not valid utf-8: expected utf-8 text"):
        read_reviews(path, 5)


def test_the_published_splits_are_kept(source: WriteSource) -> None:
    line = "u\t\tp\t\t{}\t\t{} row\n"
    counts = {"train": 5, "dev": 3, "test": 2}
    files = {
        f"yelp-2013-{split}.txt.ss": "".join(line.format(number % 5 + 1, split) for number in range(count)).encode()
        for split, count in counts.items()
    }
    data = read(source("yelp13", files), TextClassificationData)
    assert data.rows() == counts
    assert data.classes == ("1", "2", "3", "4", "5")
    for name, split in data.splits().items():
        assert set(split.texts) == {f"{name} row"}
    assert data.notes == ("splits as published",)
