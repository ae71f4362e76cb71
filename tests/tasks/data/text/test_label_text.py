"""The `label text` format of TREC, MR, CR and SUBJ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from tasks.data import locate, read
from tasks.data.classification import TextClassificationData
from tasks.data.text.labeled_text import read_label_text

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource

# Bytes as published: latin-1 with \x85, at which str.splitlines would cut.
QUESTIONS = (
    b"0 How did serfdom develop ?\n"
    b"3 Who wrote \x93 Caf\xe9 Society \x94 \x85 and when ?\n"
    b"5 How far is it\tfrom  Denver to Aspen ?\n"
)


def rows_of(path: Path, classes: int = 6) -> list[tuple[int, str]]:
    split, _ = read_label_text(path, classes)
    return list(zip(split.labels.tolist(), split.texts, strict=True))


def test_rows_as_published(tmp_path: Path) -> None:
    (tmp_path / "TREC.train.all").write_bytes(QUESTIONS)
    assert rows_of(tmp_path / "TREC.train.all") == [
        (0, "How did serfdom develop ?"),
        (3, "Who wrote \x93 Café Society \x94 and when ?"),
        (5, "How far is it from Denver to Aspen ?"),
    ]


CHARACTERS = st.characters(max_codepoint=255, exclude_characters="\n\0")
TEXT = st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda text: text.split())


@given(st.lists(st.tuples(st.integers(0, 5), TEXT), max_size=20))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.all"
    # The first row is not valid UTF-8, so the file cannot be mistaken for it.
    rows = [(1, "caf\xe9 noir"), *rows]
    path.write_bytes("".join(f"{label} {text}\n" for label, text in rows).encode("latin-1"))
    assert rows_of(path) == [(label, " ".join(text.split())) for label, text in rows]


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
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert {name: rows_of(tmp_path / name) for name in contents} == {
        name: [(1, "une soirée très réussie"), (0, "raté")] for name in contents
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0 fine\n6 wrong\n", r"rows\.all:2: label '6': expected a number from 0 to 5"),
        (b"0 fine\nwhat is this\n", r"rows\.all:2: label 'what': expected a number from 0 to 5"),
        (b"DESC:manner How ?\n", r"rows\.all:1: label 'DESC:manner'"),
        (b"-1 wrong\n", r"rows\.all:1: label '-1'"),
        (b"1_0 wrong\n", r"rows\.all:1: label '1_0'"),
        (b"\xb2 a superscript two\n", r"rows\.all:1: label"),
        (b"0 fine\n\n0 fine\n", r"rows\.all:2: no label: expected 'label text'"),
        (b"", r"rows\.all: the file is empty"),
        (b"\n\n", r"rows\.all: the file is empty"),
        (b"0 \n1\n", r"rows\.all: no row has a text"),
        ("0 fine\n1 bon\n".encode("utf-16"), r"rows\.all:1: zero byte: expected latin-1 text"),
        (b"0 fine\n1 PK\x00\x01\n", r"rows\.all:2: zero byte"),
    ],
)
def test_a_line_that_does_not_parse_is_reported_by_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.all"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_label_text(path, 6)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.all: No such file"):
        read_label_text(tmp_path / "gone.all", 2)


def test_rows_without_text_are_left_out_and_counted(source: WriteSource) -> None:
    # The published custrev.all has four such rows.
    rows = b"0 bad .\n1 good .\n" * 20
    data = read(source("cr", {"custrev.all": rows + b"0 \n1\n"}), TextClassificationData)
    assert sum(data.rows().values()) == 40
    assert "2 rows of custrev.all without text left out" in data.notes


def test_one_file_becomes_80_10_10(source: WriteSource) -> None:
    content = "".join(f"{number % 2} sentence {number}\n" for number in range(200))
    located = source("mr", {"rt-polarity.all": content.encode()})
    data = read(located, TextClassificationData)
    assert data.rows() == {"train": 160, "dev": 20, "test": 20}
    assert data.class_rows()["test"] == {"negative": 10, "positive": 10}
    texts = [text for split in data.splits().values() for text in split.texts]
    assert sorted(texts) == sorted(f"sentence {number}" for number in range(200))
    for split in data.splits().values():
        assert all(int(text.split()[1]) % 2 == label for text, label in zip(split.texts, split.labels, strict=True))
    again = read(located, TextClassificationData)
    assert again.test.texts == data.test.texts
    assert any("80 % train" in note and "seed 2019" in note for note in data.notes)


def test_a_published_test_file_is_the_test_split(source: WriteSource) -> None:
    train = "".join(f"{number % 6} question {number}\n" for number in range(120))
    data = read(source("trec", {"TREC.train.all": train.encode(), "TREC.test.all": QUESTIONS}), TextClassificationData)
    assert data.rows() == {"train": 108, "dev": 12, "test": 3}
    assert data.classes == ("description", "entity", "abbreviation", "human", "location", "number")
    assert set(data.class_rows()["dev"].values()) == {2}


def test_a_set_too_small_to_be_split_is_refused(source: WriteSource) -> None:
    with pytest.raises(InputError, match=r"data 'mr': no rows for (dev|test)"):
        read(source("mr", {"rt-polarity.all": b"0 bad\n1 good\n"}), TextClassificationData)


def test_a_set_of_another_kind_is_refused() -> None:
    with pytest.raises(
        InputError, match="data 'digits' is for image-classification: expected a data set for text-class"
    ):
        read(locate("digits"), TextClassificationData)
