"""Parallel text: two files per split, read in parallel."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import Source, read_any
from dropbench.tasks.data.check import check
from dropbench.tasks.data.translation.parallel import PairFiles, ParallelText
from tests.input_errors import one_line
from tests.tasks.data.conftest import RealSource, WriteSource

GERMAN = {"train": "Ein Hund.\nZwei Männer.\n", "val": "Ein Mann.\n", "test_2016_flickr": "Ein Kind.\n"}
ENGLISH = {"train": "A dog.\nTwo men.\n", "val": "A man.\n", "test_2016_flickr": "A child.\n"}


def packed(**changes: bytes) -> dict[str, bytes]:
    """Return the six files of Multi30k; `train_en` replaces train.en.gz."""
    files = {f"{name}.en.gz": text.encode() for name, text in ENGLISH.items()}
    files |= {f"{name}.de.gz": text.encode() for name, text in GERMAN.items()}
    files |= {f"{name.replace('_', '.')}.gz": content for name, content in changes.items()}
    return {name: gzip.compress(content) for name, content in files.items()}


def text(source: Source) -> ParallelText:
    data = read_any(source)
    assert isinstance(data, ParallelText)
    return data


def test_lines_are_paired_by_number(source: WriteSource) -> None:
    data = text(source("multi30k", packed()))
    assert (data.source, data.target, data.form) == ("en", "de", "raw")
    assert data.rows() == {"train": 2, "dev": 1, "test": 1}
    assert list(data.files["train"].pairs()) == [("A dog.", "Ein Hund."), ("Two men.", "Zwei Männer.")]
    assert data.notes == ()


def test_white_space_is_single_and_only_a_line_feed_ends_a_line(source: WriteSource) -> None:
    english = "\ufeffA \u00a0 dog.\r\nTwo\x85men\u2028here.\n".encode()
    data = text(source("multi30k", packed(train_en=english)))
    assert [pair[0] for pair in data.files["train"].pairs()] == ["A dog.", "Two men here."]


def test_pairs_with_an_empty_side_are_counted_and_left_out(source: WriteSource) -> None:
    files = packed(train_en=b"\nA dog.\n \nB.\n\n \n", train_de=b"Eins\nHund.\n\nZwei.\n")
    checked = check(source("multi30k", files))
    assert checked.rows["train"] == 2
    assert checked.notes == ("2 pairs of train with an empty side left out",)
    assert "train: 4 rows" in checked.differences()[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_en": b"A dog.\nTwo men.\nThree.\n"},
            r"train\.en\.gz:3: train\.de\.gz has no line 3",
        ),
        ({"train_de": "Ein Hund.\nZwei Männer.\n".encode("latin-1")}, r"train\.de\.gz:2: byte 0xe4 is not valid utf-8"),
        ({"val_en": b"", "val_de": b""}, r"val\.en\.gz: the file is empty"),
        ({"val_en": b"\n", "val_de": b"Ein Mann.\n"}, r"val\.en\.gz: no sentence with a translation"),
    ],
)
def test_errors_are_reported_in_one_line(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    data = text(source("multi30k", packed(**changes)))
    with one_line(message):
        data.rows()


def test_a_file_that_is_truncated_or_not_gzipped_is_reported(tmp_path: Path) -> None:
    complete = gzip.compress(b"A dog.\n" * 10_000)
    (tmp_path / "a.de").write_bytes(b"Ein Hund.\n" * 10_000)
    for content in (complete[: len(complete) // 2], b"no archive"):
        (tmp_path / "a.en.gz").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.en\.gz:\d+: damaged gzip file"):
            PairFiles(tmp_path / "a.en.gz", tmp_path / "a.de").counts  # noqa: B018


def test_multi30k_is_complete(real: RealSource) -> None:
    checked = check(real("multi30k"))
    assert checked.rows == {"train": 29_000, "dev": 1014, "test": 1000}
    assert checked.differences() == []
