"""Labeled texts, one row per line: `label text` of TREC, MR, CR and SUBJ, AG's News as csv, Yelp in Tang's format."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.tasks.data import read
from dropbench.tasks.data.classification import TextClassificationData
from dropbench.tasks.data.text.labeled_text import read_label_text, read_news_csv, read_reviews
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

# Bytes as published: latin-1 with \x85, at which str.splitlines would cut.
QUESTIONS = (
    b"0 How did serfdom develop ?\n"
    b"3 Who wrote \x93 Caf\xe9 Society \x94 \x85 and when ?\n"
    b"5 How far is it\tfrom  Denver to Aspen ?\n"
)
NEWS_CLASSES = b"World\nSports\nBusiness\nSci/Tech\n\n"
# As published: doubled quotes, backslashes at line ends and before dollar signs.
NEWS = (
    '"3","Fears for T N pension after talks","Unions say they are \'disappointed\'"\n'
    '"4","Launch Date Set","A second\\team of rocketeers for the  \\$10 million prize"\n'
    '"1","He said ""no"", twice","\\""Never"" he added."\n'
    '"2","Jeter, Yankees Look to Take Control"\n'
)
REVIEWS = (
    "user-1\t\tproduct-1\t\t5\t\tmy wife took me here . <sssss> the weather was perfect .\n"
    "user-2\t\tproduct-2\t\t1\t\tcafé closed !\n"
)
READERS = {"rows.all": (read_label_text, 6), "test.csv": (read_news_csv, 4), "yelp": (read_reviews, 5)}
"""The reader of a file, by its name in these tests, and the number of classes."""
MakeFolder = pytest.TempPathFactory


def rows_of(folder: Path, name: str, content: bytes) -> list[tuple[int, str]]:
    reader, classes = READERS[name]
    (folder / name).write_bytes(content)
    split, _ = reader(folder / name, classes)
    return list(zip(split.labels.tolist(), split.texts, strict=True))


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        (
            "rows.all",
            QUESTIONS,
            [
                (0, "How did serfdom develop ?"),
                (3, "Who wrote \x93 Café Society \x94 and when ?"),
                (5, "How far is it from Denver to Aspen ?"),
            ],
        ),
        (
            "test.csv",
            NEWS.encode(),
            [
                (2, "Fears for T N pension after talks Unions say they are 'disappointed'"),
                (3, "Launch Date Set A second team of rocketeers for the $10 million prize"),
                (0, 'He said "no", twice "Never" he added.'),
                (1, "Jeter, Yankees Look to Take Control"),
            ],
        ),
        (
            "yelp",
            REVIEWS.encode(),
            [(4, "my wife took me here . the weather was perfect ."), (0, "café closed !")],
        ),
    ],
)
def test_rows_as_published(tmp_path: Path, name: str, content: bytes, rows: list[tuple[int, str]]) -> None:
    assert rows_of(tmp_path, name, content) == rows


CHARACTERS = st.characters(max_codepoint=255, exclude_characters="\n\0")
TEXT = st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda text: text.split())


@given(st.lists(st.tuples(st.integers(0, 5), TEXT), max_size=20))
def test_label_text_that_is_written_is_read(tmp_path_factory: MakeFolder, rows: list[tuple[int, str]]) -> None:
    # The first row is not valid UTF-8, so the file cannot be mistaken for it.
    rows = [(1, "caf\xe9 noir"), *rows]
    content = "".join(f"{label} {text}\n" for label, text in rows).encode("latin-1")
    expected = [(label, " ".join(text.split())) for label, text in rows]
    assert rows_of(tmp_path_factory.mktemp("rows"), "rows.all", content) == expected


FIELD = st.text(st.characters(exclude_characters="\0\\\r", exclude_categories=["Cs"]), max_size=30)
FIELDS = st.lists(FIELD, min_size=1, max_size=2).filter(lambda fields: "".join(fields).split())


@given(st.lists(st.tuples(st.integers(1, 4), FIELDS), min_size=1, max_size=10))
def test_csv_that_is_written_is_read(tmp_path_factory: MakeFolder, rows: list[tuple[int, list[str]]]) -> None:
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([label, *fields] for label, fields in rows)
    expected = [(label - 1, " ".join(" ".join(fields).split())) for label, fields in rows]
    assert rows_of(tmp_path_factory.mktemp("news"), "test.csv", written.getvalue().encode()) == expected


def test_a_copy_in_utf8_or_with_windows_line_ends_gives_the_same_rows(tmp_path: Path) -> None:
    text = "1 une soirée très réussie\n0 raté\n"
    contents = {
        "latin": text.encode("latin-1"),
        "utf8": text.encode(),
        "mark": b"\xef\xbb\xbf" + text.encode(),
        "windows": text.replace("\n", "\r\n").encode("latin-1"),
        "unended": text.rstrip().encode("latin-1"),
        "blank": (text + "\n \n").encode("latin-1"),
    }
    rows = [(1, "une soirée très réussie"), (0, "raté")]
    assert {name: rows_of(tmp_path, "rows.all", content) for name, content in contents.items()} == dict.fromkeys(
        contents, rows
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.all", b"0 fine\n6 wrong\n", "2: label '6': expected a number from 0 to 5"),
        ("rows.all", b"-1 wrong\n", "1: label '-1'"),
        ("rows.all", b"1_0 wrong\n", "1: label '1_0'"),
        ("rows.all", b"\xb2 a superscript two\n", "1: label"),
        ("rows.all", b"0 fine\n\n0 fine\n", "2: no label: expected 'label text'"),
        ("rows.all", b"\n\n", " the file is empty"),
        ("rows.all", b"0 \n1\n", " no row has a text"),
        ("rows.all", b"0 fine\n1 PK\x00\x01\n", "2: zero byte: expected latin-1 text"),
        ("test.csv", b'"1","a","b"\n"2","open\n"3","c","d"\n', "2: .*expected quoted fields"),
        ("test.csv", b'"1","a" b,"c"\n', "1: .*expected quoted fields"),
        ("test.csv", b'"0","a","b"\n', "1: label '0': expected a number from 1 to 4"),
        ("test.csv", b'"1"\n', "1: expected class, title, description or class, text, not 1"),
        ("test.csv", b'"1","a","b","c"\n', "1: .*, not 4"),
        ("test.csv", b'"1","a"\n\n"1","b"\n', "2: .*, not 0"),
        ("test.csv", b'"1","a"\n"1","caf\xe9 noir"\n', "2: byte 0xe9 is not valid utf-8"),
        ("yelp", b"u\t\tp\t\t3\t\tfine\nu\t\tp\t\t6\t\ttext\n", "2: label '6': expected a number from 1 to 5"),
        ("yelp", b"u\t\tp\t\t3\n", "1: 3 fields: expected user, product, rating, text"),
        ("yelp", b"u\t\tp\t\t3\t\tfine\n\nu\t\tp\t\t3\t\tfine\n", "2: 1 field: "),
        ("yelp", REVIEWS.encode("latin-1"), "2: byte 0xe9 is not valid utf-8: expected utf-8 text"),
    ],
)
def test_a_line_that_does_not_parse_is_reported_by_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with one_line(f"{name}:{message}"):
        rows_of(tmp_path, name, content)


def test_rows_without_text_are_left_out_and_counted(source: WriteSource) -> None:
    # The published custrev.all has four such rows.
    rows = b"0 bad .\n1 good .\n" * 20
    data = read(source("cr", {"custrev.all": rows + b"0 \n1\n"}), TextClassificationData)
    assert sum(data.rows().values()) == 40
    assert "2 rows of custrev.all without text left out" in data.notes


def test_one_file_becomes_80_10_10(source: WriteSource) -> None:
    content = "".join(f"{number % 2} sentence {number}\n" for number in range(200))
    data = read(source("mr", {"rt-polarity.all": content.encode()}), TextClassificationData)
    assert data.rows() == {"train": 160, "dev": 20, "test": 20}
    assert data.class_rows()["test"] == {"negative": 10, "positive": 10}
    rows = [row for split in data.splits().values() for row in zip(split.texts, split.labels.tolist(), strict=True)]
    assert sorted(rows) == sorted((f"sentence {number}", number % 2) for number in range(200))
    assert any("80 % train" in note and "seed 2019" in note for note in data.notes)


def test_a_set_too_small_to_be_split_is_refused(source: WriteSource) -> None:
    with pytest.raises(InputError, match=r"data 'mr': no rows for (dev|test)"):
        read(source("mr", {"rt-polarity.all": b"0 bad\n1 good\n"}), TextClassificationData)


def test_news_have_their_published_test_file(source: WriteSource) -> None:
    train = "".join(f'"{number % 4 + 1}","title {number}","text"\n' for number in range(80)).encode()
    files = {"train.csv": train, "test.csv": NEWS.encode(), "classes.txt": NEWS_CLASSES}
    data = read(source("ag-news", files), TextClassificationData)
    assert data.classes == ("World", "Sports", "Business", "Sci/Tech")
    assert data.rows() == {"train": 72, "dev": 8, "test": 4}
    assert data.class_rows()["dev"] == {"World": 2, "Sports": 2, "Business": 2, "Sci/Tech": 2}
    for split in (data.train, data.dev):
        assert all(int(text.split()[1]) % 4 == label for text, label in zip(split.texts, split.labels, strict=True))


def test_the_published_splits_of_reviews_are_kept(source: WriteSource) -> None:
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
