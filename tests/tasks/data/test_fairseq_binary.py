"""What fairseq-preprocess writes is read, and held beside its dictionary, without fairseq."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from harness.errors import InputError
from tasks.data import DATASETS, Source, locate, read_any
from tasks.data.binarise import prepare
from tasks.data.check import check
from tasks.data.fairseq_binary import HEADER, MAGIC, Binarised, BinarisedPairs, symbols

WriteSource = Callable[[str, Mapping[str, bytes]], Source]


def index(sizes: list[int], code: int = 8, version: int = 1) -> bytes:
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) * 2
    return HEADER.pack(MAGIC, version, code, len(sizes)) + struct.pack(
        f"<{len(sizes)}i{len(sizes)}q", *sizes, *(int(start) for start in starts)
    )


def tokens(*sentences: list[int]) -> tuple[bytes, bytes]:
    """The content of a .bin and an .idx file."""
    joined = [token for sentence in sentences for token in sentence]
    return np.array(joined, "<u2").tobytes(), index([len(sentence) for sentence in sentences])


def folder(**changes: bytes) -> dict[str, bytes]:
    """A folder that is binarised already; `valid_de_idx` stands for valid.en-de.de.idx."""
    files = {f"dict.{language}.txt": b"a 3\nb@@ 2\nc 1\n" for language in ("en", "de")}
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            content = tokens([4, 5, 2], [6, 2])
            for part, value in zip(("bin", "idx"), content, strict=True):
                files[f"{split}.en-de.{language}.{part}"] = changes.get(f"{split}_{language}_{part}", value)
    return files | {name.replace("_", ".") + ".txt": value for name, value in changes.items() if "dict" in name}


def test_a_binarised_folder_is_a_layout_of_the_same_set(source: WriteSource) -> None:
    found = source("wmt16-en-de", folder())
    assert found.layout is DATASETS.get("wmt16-en-de").layouts[1]
    data = read_any(found)
    assert isinstance(data, BinarisedPairs)
    assert (data.source, data.target) == ("en", "de")
    assert data.rows() == {"train": 2, "dev": 2, "test": 2}
    assert data.sentences("dev", "de").tokens.tolist() == [4, 5, 2, 6, 2]
    assert data.sentences("dev", "de").sizes.tolist() == [3, 2]
    checked = check(found)
    assert len(checked.differences()) == 3
    prepared = prepare(data, "whatever", pieces=5, symbols=5)
    assert (prepared.pairs, prepared.references) == (data, None)


def test_it_reads_what_fairseq_wrote() -> None:
    source = locate("wmt16-en-de-synthetic")
    prepared = prepare(read_any(source), source.fingerprint(), pieces=0, symbols=32_768)  # type: ignore[arg-type]
    pairs = prepared.pairs
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    for language in ("en", "de"):
        ours = pairs.sentences("train", language)
        theirs = MMapIndexedDataset(str(ours.prefix))
        assert ours.sizes.tolist() == theirs.sizes.tolist()
        assert ours.tokens.tolist() == [token for sentence in theirs for token in sentence.tolist()]
        ours.check(symbols(pairs.folder / f"dict.{language}.txt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_de_idx": index([3])}, r"train\.en-de\.de\.idx: its sentences are not those of train\.en-de\.de\.bin"),
        ({"train_de_idx": index([3, -2, 4])}, "its sentences are not those of"),
        ({"train_de_idx": index([3, 2])[:-3]}, "bytes for 2 sentences: cut short, or altered"),
        ({"train_de_idx": index([3, 2], code=7)}, "version 1, type 7: expected version 1 and a type of whole numbers"),
        ({"train_de_idx": index([3, 2], version=2)}, "version 2, type 8"),
        ({"train_de_idx": b"TNTIDX\0\0" + b"\0" * 30}, "no index of fairseq's mmap format"),
        ({"train_de_idx": b""}, "no index of fairseq's mmap format"),
        ({"train_de_bin": b"\0\0" * 4}, "which has 8 bytes"),
        (
            dict(zip(("test_de_bin", "test_de_idx"), tokens([4, 2]), strict=True)),
            r"sentences: 2 in test\.en-de\.en and 1 in test\.en-de\.de: expected as many in both",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_told(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    data = read_any(source("wmt16-en-de", folder(**changes)))
    with pytest.raises(InputError, match=message):
        data.rows()


def test_a_token_outside_the_dictionary_is_told_before_training(source: WriteSource) -> None:
    content = dict(zip(("valid_de_bin", "valid_de_idx"), tokens([4, 7, 2], [6, 2]), strict=True))
    data = read_any(source("wmt16-en-de", folder(**content)))
    message = r"valid\.en-de\.de\.bin: token 7: expected 0 to 6, as its dictionary has"
    with pytest.raises(InputError, match=message):
        data.verify(lambda: None)
    with pytest.raises(InputError, match=message):
        prepare(data, "whatever", pieces=5, symbols=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 3\nb\n", r"dict\.de\.txt:2: expected a symbol and its count, such as 'und@@ 315'"),
        (b"a 3\nb x\n", r"dict\.de\.txt:2: expected a symbol and its count"),
        (b"a 3\nb 2\na 1\n", r"dict\.de\.txt:3: symbol 'a' is there already"),
        (b"a 3\n\xe4 2\n", r"dict\.de\.txt:2: byte 0xe4 is no utf-8"),
    ],
)
def test_a_damaged_dictionary_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        symbols(path)


def test_a_symbol_may_be_overwritten_as_in_fairseq(tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(b"a 3\nb 2\na 1 #fairseq:overwrite\n")
    assert symbols(path) == 6


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.idx: No such file"):
        Binarised(tmp_path / "x").sizes  # noqa: B018
