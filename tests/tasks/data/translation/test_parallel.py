"""Parallel text: two files per split, read in parallel."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, Source, locate, read_any
from dropbench.tasks.data.check import check
from dropbench.tasks.data.translation.parallel import PairFiles, ParallelText

WriteSource = Callable[[str, Mapping[str, bytes]], Source]
RealSource = Callable[[str], Source]

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


def test_unpacked_files_are_read_too(source: WriteSource) -> None:
    files = {name.removesuffix(".gz"): gzip.decompress(content) for name, content in packed().items()}
    assert text(source("multi30k", files)).rows() == {"train": 2, "dev": 1, "test": 1}


def test_tokens_in_pieces_are_read_plain(source: WriteSource) -> None:
    layout = DATASETS.get("wmt16-en-de").layouts[0]
    files = {name: b"a@@ b .\nc .\n" if name.endswith("en") else b"x .\ny@@ z .\n" for name in layout.files}
    data = text(source("wmt16-en-de", files))
    assert (data.source, data.target, data.form) == ("en", "de", "bpe")
    assert list(data.files["test"].pairs()) == [("a@@ b .", "x ."), ("c .", "y@@ z .")]


def test_white_space_is_single_and_only_a_line_feed_ends_a_line(source: WriteSource) -> None:
    english = "\ufeffA \u00a0 dog.\r\nTwo\x85men\u2028here.\n".encode()
    data = text(source("multi30k", packed(train_en=english)))
    assert [pair[0] for pair in data.files["train"].pairs()] == ["A dog.", "Two men here."]


def test_pairs_with_an_empty_side_are_counted_and_left_out(source: WriteSource) -> None:
    data = text(source("multi30k", packed(train_en=b"\nA dog.\n \nB.\n", train_de=b"Eins\nHund.\n\nZwei.\n")))
    assert data.rows()["train"] == 2
    assert data.notes == ("2 pairs of train with an empty side left out",)
    checked = check(data_source := source("multi30k", packed(train_en=b"\nA dog.\n", train_de=b"Eins\nHund.\n")))
    assert checked.notes == ("1 pair of train with an empty side left out",)
    [train] = [entry for entry in checked.published if entry.split == "train"]
    assert (train.found, train.count) == (2, 29_000)
    assert "train: 2 rows" in checked.differences()[0]
    assert data_source.dataset.name == "multi30k"


def test_empty_lines_after_the_last_sentence_are_no_sentences(source: WriteSource) -> None:
    data = text(source("multi30k", packed(train_en=b"A dog.\nTwo men.\n\n \n")))
    assert data.rows()["train"] == 2
    assert data.notes == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_en": b"A dog.\nTwo men.\nThree.\n"},
            r"train\.en\.gz:3: train\.de\.gz has no line 3: expected as many",
        ),
        ({"train_de": b"a\nb\nc\nd\n"}, r"train\.de\.gz:3: train\.en\.gz has no line 3"),
        ({"train_de": "Ein Hund.\nZwei Männer.\n".encode("latin-1")}, r"train\.de\.gz:2: byte 0xe4 is not valid utf-8"),
        ({"val_de": "Ein Mann.\n".encode("utf-16")}, r"val\.de\.gz:1: zero byte|val\.de\.gz:1: byte 0xff"),
        ({"val_de": b"Ein\0Mann.\n"}, r"val\.de\.gz:1: zero byte"),
        ({"val_en": b"", "val_de": b""}, r"val\.en\.gz: the file is empty"),
        ({"val_en": b"\n", "val_de": b"Ein Mann.\n"}, r"val\.en\.gz: no sentence with a translation"),
    ],
)
def test_errors_are_reported_in_one_line(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    data = text(source("multi30k", packed(**changes)))
    with pytest.raises(InputError, match=message) as error:
        data.rows()
    assert "\n" not in str(error.value)


def test_a_file_that_is_truncated_or_not_gzipped_is_reported(tmp_path: Path) -> None:
    complete = gzip.compress(b"A dog.\n" * 10_000)
    for content, message in (
        (complete[: len(complete) // 2], r"a\.en\.gz:\d+: damaged gzip file"),
        (b"no archive", r"a\.en\.gz:1: damaged gzip file"),
        (complete[:20] + b"\xff" * 20 + complete[40:], r"a\.en\.gz:\d+: damaged gzip file"),
    ):
        (tmp_path / "a.en.gz").write_bytes(content)
        (tmp_path / "a.de").write_bytes(b"Ein Hund.\n" * 10_000)
        with pytest.raises(InputError, match=message):
            PairFiles(tmp_path / "a.en.gz", tmp_path / "a.de").counts  # noqa: B018
    with pytest.raises(InputError, match=r"nothing\.en: No such file"):
        PairFiles(tmp_path / "nothing.en", tmp_path / "a.de").counts  # noqa: B018


@pytest.mark.parametrize("name", ["multi30k", "wmt16-en-de"])
def test_synthetic_words_have_one_translation_in_reversed_order(name: str) -> None:
    data = text(locate(f"{name}-synthetic"))
    translation: dict[str, str] = {}
    for split in ("train", "test"):
        for pair in data.files[split].pairs():
            source, target = (re.findall(r"\w+", side.replace("@@ ", "").lower()) for side in pair)
            assert len(source) == len(target)
            for word, translated in zip(source, reversed(target), strict=True):
                assert translation.setdefault(word, translated) == translated
    assert len(set(translation.values())) == len(translation) > 50


def test_multi30k_is_complete(real: RealSource) -> None:
    checked = check(real("multi30k"))
    assert checked.rows == {"train": 29_000, "dev": 1014, "test": 1000}
    assert checked.differences() == []


def test_a_sample_of_wmt_in_moses_tokens_is_read(real: RealSource) -> None:
    folder = real("multi30k").folder.parent / "wmt14-en-de-sample"
    if not folder.is_dir():
        pytest.skip("no wmt14-en-de-sample in DROPBENCH_DATA")
    for name, count in (("train", 10_000), ("val", 3000), ("test", 2737)):
        assert PairFiles(folder / f"src-{name}.txt", folder / f"tgt-{name}.txt").counts == (count, 0)
