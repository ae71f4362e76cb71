"""Output of fairseq-preprocess: read, and checked against its dictionaries."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, locate, read_any
from dropbench.tasks.data.check import check
from dropbench.tasks.data.translation.fairseq_binary import HEADER, MAGIC, BinarizedPairs, count_symbols
from dropbench.tasks.data.translation.fairseq_preprocess import prepare
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource


def index(sizes: list[int], code: int = 8, version: int = 1) -> bytes:
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) * 2
    return HEADER.pack(MAGIC, version, code, len(sizes)) + struct.pack(
        f"<{len(sizes)}i{len(sizes)}q", *sizes, *(int(start) for start in starts)
    )


def tokens(*sentences: list[int]) -> tuple[bytes, bytes]:
    """Return the content of a .bin and an .idx file."""
    ids = [token for sentence in sentences for token in sentence]
    return np.array(ids, "<u2").tobytes(), index([len(sentence) for sentence in sentences])


def folder(**changes: bytes) -> dict[str, bytes]:
    """Return the files of a binarized folder; `valid_de_idx` replaces valid.en-de.de.idx."""
    files = {f"dict.{language}.txt": b"a 3\nb@@ 2\nc 1\n" for language in ("en", "de")}
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            content = tokens([4, 5, 2], [6, 2])
            for part, value in zip(("bin", "idx"), content, strict=True):
                files[f"{split}.en-de.{language}.{part}"] = changes.get(f"{split}_{language}_{part}", value)
    return files | {name.replace("_", ".") + ".txt": value for name, value in changes.items() if "dict" in name}


def test_a_binarized_folder_is_a_layout_of_the_same_set(source: WriteSource) -> None:
    located = source("wmt16-en-de", folder())
    assert located.layout is DATASETS.get("wmt16-en-de").layouts[1]
    data = read_any(located)
    assert isinstance(data, BinarizedPairs)
    assert (data.source, data.target) == ("en", "de")
    assert data.rows() == {"train": 2, "dev": 2, "test": 2}
    assert data.sentences("dev", "de").tokens.tolist() == [4, 5, 2, 6, 2]
    assert data.sentences("dev", "de").sizes.tolist() == [3, 2]
    assert len(check(located).differences()) == 3
    prepared = prepare(data, "whatever", bpe_size=5, max_symbols=5)
    assert (prepared.pairs, prepared.references) == (data, None)


def test_it_reads_what_fairseq_wrote() -> None:
    source = locate("wmt16-en-de-synthetic")
    prepared = prepare(read_any(source), source.fingerprint(), bpe_size=0, max_symbols=32_768)  # type: ignore[arg-type]
    pairs = prepared.pairs
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    for language in ("en", "de"):
        ours = pairs.sentences("train", language)
        theirs = MMapIndexedDataset(str(ours.prefix))
        assert ours.sizes.tolist() == theirs.sizes.tolist()
        assert ours.tokens.tolist() == [token for sentence in theirs for token in sentence.tolist()]
        ours.check(count_symbols(pairs.folder / f"dict.{language}.txt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_de_idx": index([3])}, r"train\.en-de\.de\.idx: does not match the 10 bytes of train\.en-de\.de\.bin"),
        ({"train_de_idx": index([3, 2])[:-3]}, "bytes for 2 sentences: truncated or modified"),
        ({"train_de_idx": index([3, 2], code=7)}, "version 1, dtype 7: expected version 1 and an integer dtype"),
        ({"train_de_idx": b"TNTIDX\0\0" + b"\0" * 30}, "no mmap index of fairseq"),
        (
            dict(zip(("test_de_bin", "test_de_idx"), tokens([4, 2]), strict=True)),
            r"sentences: 2 in test\.en-de\.en and 1 in test\.en-de\.de: expected the same number in both",
        ),
    ],
)
def test_inconsistent_files_are_reported(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    data = read_any(source("wmt16-en-de", folder(**changes)))
    with pytest.raises(InputError, match=message):
        data.rows()


def test_a_token_outside_the_dictionary_is_reported_before_training(source: WriteSource) -> None:
    content = dict(zip(("valid_de_bin", "valid_de_idx"), tokens([4, 7, 2], [6, 2]), strict=True))
    data = read_any(source("wmt16-en-de", folder(**content)))
    message = r"valid\.en-de\.de\.bin: token 7: expected 0 to 6, as in its dictionary"
    with pytest.raises(InputError, match=message):
        data.verify(lambda: None)
    with pytest.raises(InputError, match=message):
        prepare(data, "whatever", bpe_size=5, max_symbols=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 3\nb\n", "expected '<token> <cnt> \\[flags\\]': \"b"),
        (b"a 3\nb 2\na 1\n", "Duplicate word found when loading Dictionary: 'a'"),
        (b"a 3\n\xe4 2\n", "Incorrect encoding detected"),
    ],
)
def test_a_damaged_dictionary_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(content)
    with one_line(rf"dict\.de\.txt: .*{message}"):
        count_symbols(path)
