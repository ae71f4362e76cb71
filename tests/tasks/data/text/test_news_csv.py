"""AG's News as csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from tasks.data import read
from tasks.data.classification import TextClassificationData
from tasks.data.text.labeled_text import read_news_csv

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource

CLASSES = b"World\nSports\nBusiness\nSci/Tech\n\n"
# As published: doubled quotes, backslashes at line ends and before dollar signs.
PUBLISHED = (
    '"3","Fears for T N pension after talks","Unions say they are \'disappointed\'"\n'
    '"4","Launch Date Set","A second\\team of rocketeers for the  \\$10 million prize"\n'
    '"1","He said ""no"", twice","\\""Never"" he added."\n'
)


def rows_of(path: Path) -> list[tuple[int, str]]:
    split, _ = read_news_csv(path, 4)
    return list(zip(split.labels.tolist(), split.texts, strict=True))


def test_rows_as_published(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(PUBLISHED)
    assert rows_of(tmp_path / "test.csv") == [
        (2, "Fears for T N pension after talks Unions say they are 'disappointed'"),
        (3, "Launch Date Set A second team of rocketeers for the $10 million prize"),
        (0, 'He said "no", twice "Never" he added.'),
    ]


def test_two_columns(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('"2","Jeter, Yankees Look to Take Control"\n')
    assert rows_of(tmp_path / "train.csv") == [(1, "Jeter, Yankees Look to Take Control")]


FIELD = st.text(st.characters(exclude_characters="\0\\\r", exclude_categories=["Cs"]), max_size=30)
FIELDS = st.lists(FIELD, min_size=1, max_size=2).filter(lambda fields: "".join(fields).split())
ROW = st.tuples(st.integers(1, 4), FIELDS)


@given(st.lists(ROW, min_size=1, max_size=10))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, list[str]]]) -> None:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [label, *fields] for label, fields in rows
    )
    path = tmp_path_factory.mktemp("news") / "train.csv"
    path.write_bytes(written.getvalue().encode())
    assert rows_of(path) == [(label - 1, " ".join(" ".join(fields).split())) for label, fields in rows]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('"1","a","b"\n"2","open\n"3","c","d"\n', r"test\.csv:2: .*expected quoted fields"),
        ('"1","a","b"\n"2","c","open to the end\n', r"test\.csv:2: .*expected quoted fields"),
        ('"1","a" b,"c"\n', r"test\.csv:1: .*expected quoted fields"),
        ('"0","a","b"\n', r"test\.csv:1: label '0': expected a number from 1 to 4"),
        ('"1","a","b"\n"5","a","b"\n', r"test\.csv:2: label '5': expected a number from 1 to 4"),
        ("Class Index,Title,Description\n", r"test\.csv:1: label 'Class Index'"),
        ('"1"\n', r"test\.csv:1: expected class, title, description or class, text, not 1"),
        ('"1","a","b","c"\n', r"test\.csv:1: .*, not 4"),
        ('"1","a"\n\n"1","b"\n', r"test\.csv:2: .*, not 0"),
        ("", r"test\.csv: the file is empty"),
        (f'"1","a"\n"1","{"x" * 200_000}\n', r"test\.csv:2: field larger than field limit"),
    ],
)
def test_a_row_that_does_not_parse_is_reported_by_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "test.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_news_csv(path, 4)
    assert "\n" not in str(error.value)


def test_another_encoding_is_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_bytes(b'"1","a"\n"1","caf\xe9 noir"\n')
    with pytest.raises(InputError, match=r"test\.csv:2: byte 0xe9 is not valid utf-8"):
        read_news_csv(path, 4)


def test_the_full_set(source: WriteSource) -> None:
    train = "".join(f'"{number % 4 + 1}","title {number}","text"\n' for number in range(80)).encode()
    files = {"train.csv": train, "test.csv": PUBLISHED.encode(), "classes.txt": CLASSES}
    data = read(source("ag-news", files), TextClassificationData)
    assert data.classes == ("World", "Sports", "Business", "Sci/Tech")
    assert data.rows() == {"train": 72, "dev": 8, "test": 3}
    assert data.class_rows()["dev"] == {"World": 2, "Sports": 2, "Business": 2, "Sci/Tech": 2}
    for split in (data.train, data.dev):
        assert all(int(text.split()[1]) % 4 == label for text, label in zip(split.texts, split.labels, strict=True))


def test_too_few_class_names_are_reported_by_row(source: WriteSource) -> None:
    files = {"train.csv": PUBLISHED.encode(), "test.csv": PUBLISHED.encode(), "classes.txt": b"World\nSports\n"}
    with pytest.raises(InputError, match=r"train\.csv:1: label '3': expected a number from 1 to 2"):
        read(source("ag-news", files), TextClassificationData)
