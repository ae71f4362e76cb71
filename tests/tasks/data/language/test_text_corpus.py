"""Running text from files: WikiText's layouts, any text, and refused files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.tasks.data import read
from dropbench.tasks.data.language.documents import LanguageData
from dropbench.tasks.data.language.text_corpus import THREE_PARTS, file_chunks
from tests.input_errors import one_line
from tests.tasks.data.conftest import RealSource, WriteSource

ARTICLE = " \n = Robin = \n \n The robin is a bird . \n"


def texts(data: LanguageData) -> dict[str, str]:
    text = dict.fromkeys(("train", "dev", "test"), "")
    for chunk in data.chunks():
        text[chunk.split] += chunk.text
    return text


@pytest.mark.parametrize("suffix", ["raw", "tokens"])
@pytest.mark.parametrize("folder", ["", "archive"])
def test_wikitext_has_one_file_per_split(source: WriteSource, suffix: str, folder: str) -> None:
    folder_prefix = {"": "", "archive": "wikitext-2-raw/" if suffix == "raw" else "wikitext-2/"}[folder]
    files = {f"{folder_prefix}wiki.{part}.{suffix}": (ARTICLE * times).encode() for part, times in zip(
        ("train", "valid", "test"), (5, 2, 3), strict=True)}  # fmt: skip
    data = read(source("wikitext-2", files), LanguageData)
    assert texts(data) == {"train": ARTICLE * 5, "dev": ARTICLE * 2, "test": ARTICLE * 3}
    assert data.rows() == {"train": 10, "dev": 4, "test": 6}
    assert data.tokens() == {"train": 13 * 5, "dev": 13 * 2, "test": 13 * 3}  # nine words, four line ends
    assert data.notes == ()


def test_wikitext_without_its_train_file_notes_it_and_keeps_test(source: WriteSource) -> None:
    valid = "".join(f"line {number}\n" for number in range(100))
    data = read(source("wikitext-2", {"wiki.valid.raw": valid.encode(), "wiki.test.raw": b"the test\n"}), LanguageData)
    by_split = texts(data)
    assert by_split["train"] + by_split["dev"] == valid
    assert by_split["test"] == "the test\n"
    assert data.rows() == {"train": 91, "dev": 9, "test": 1}  # the part ends with the line in which 90 % are reached
    [note] = data.notes
    assert "wiki.train.raw is not there: the first 90 % of wiki.valid.raw are train" in note


def test_every_text_file_is_split(source: WriteSource) -> None:
    files = {f"{name}.txt": "".join(f"{name} {line}\n" for line in range(200)).encode() for name in ("b", "a")}
    data = read(source("text", {**files, ".hidden.txt": b"x", "notes.md": b"x"}), LanguageData)
    by_split = texts(data)
    # By bytes: later numbers are longer.
    assert [by_split[split].count("\n") for split in ("train", "dev", "test")] == [364, 18, 18]
    assert by_split["train"].startswith("a 0\n")
    assert [chunk.split for chunk in data.chunks() if chunk.last] == ["train", "dev", "test"] * 2
    assert data.notes == ("of each file the first 90 % are train, the next 5 % dev, the last 5 % test",)
    assert data.classes == ()
    assert data.class_rows() == {}


@given(st.text(alphabet="aé漢\U0001f600 \n", min_size=1, max_size=200), st.integers(4, 60))
def test_chunks_of_any_size_are_the_text(text: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("dropbench.tasks.data.language.text_corpus.BLOCK", block)
        path = Path(folder) / "a.txt"
        path.write_bytes(text.encode())
        chunks = list(file_chunks(path, THREE_PARTS))
    assert "".join(chunk.text for chunk in chunks) == text
    assert [chunk.split for chunk in chunks] == sorted(
        (chunk.split for chunk in chunks), key=("train", "dev", "test").index
    )
    assert sum(chunk.rows for chunk in chunks) >= sum(1 for row in text.split("\n") if row.strip())


def test_a_text_of_one_line_is_cut_between_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.tasks.data.language.text_corpus.BLOCK", 64)
    path = tmp_path / "text8.txt"
    path.write_bytes(b"some words " * 100)
    chunks = list(file_chunks(path, THREE_PARTS))
    assert {chunk.split for chunk in chunks} == {"train", "dev", "test"}
    assert {word for chunk in chunks for word in chunk.text.split()} == {"some", "words"}
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert "".join(chunk.text for chunk in file_chunks(path, THREE_PARTS)) == "one\ntwo\n"  # without marks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\ncaf\xc3\xa9\ncaf\xe9\n" * 3, r"a\.txt:3: byte 0xe9 is not valid utf-8: expected utf-8 text"),
        (b"fine\n" * 40 + b"\xff", r"a\.txt:41: byte 0xff is not valid utf-8"),
        (b"one line\n", "data 'text': no text for dev: too little to split"),
    ],
)
def test_files_that_are_not_text_are_errors_of_one_line(source: WriteSource, content: bytes, message: str) -> None:
    with one_line(message):
        read(source("text", {"a.txt": content}), LanguageData).rows()


def test_wikitext_is_as_large_as_published(real: RealSource) -> None:
    source = real("wikitext-2")
    tokens = read(source, LanguageData).tokens()
    assert tokens["test"] == 245_569
    if len(source.files) == 2:
        assert tokens["train"] + tokens["dev"] == 217_646
    else:
        assert (tokens["train"], tokens["dev"]) == (2_088_628, 217_646)
