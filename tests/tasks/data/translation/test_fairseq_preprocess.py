"""Preprocessing of text for fairseq: run once, complete, and equal for equal files."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.translation import fairseq_preprocess
from dropbench.tasks.data.translation.fairseq_preprocess import PreparedData, prepare
from dropbench.tasks.data.translation.parallel import TranslationData
from dropbench.tasks.data.translation.sentencepiece_bpe import encode, train_bpe
from tests.tasks.data.conftest import WriteSource

SENTENCES = ("Ein Mann geht, z.B. nach Köln-Nord.", "Zwei Hunde laufen.", "Ein Hund läuft nach Köln.")


def prepared(name: str, **options: int) -> PreparedData:
    source = locate(name)
    return prepare(
        read(source, TranslationData), source.fingerprint(), **{"bpe_size": 120, "max_symbols": 32_768, **options}
    )


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_joined_pieces_are_the_text_again() -> None:
    tokenizer = train_bpe(SENTENCES, 60)
    for line, parts in zip(SENTENCES, encode(tokenizer, list(SENTENCES)), strict=True):
        assert len(parts.split()) > len(line.split())
        assert parts.replace(" ", "").replace("\u2581", " ").strip() == line
    assert all("," not in piece or piece == "," for piece in tokenizer.get_vocab())
    assert encode(tokenizer, ["Ein Ω"])[0].split()[-1] == "<unk>"


def test_it_is_written_once_and_always_the_same(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepared("multi30k-synthetic").pairs.folder
    written = contents(first)
    assert {"dict.en.txt", "dict.de.txt", "train.en-de.en.bin", "valid.en-de.de.idx", "test.reference"} <= set(written)
    assert not {"text", "preprocess.log"} & set(written)
    times = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert prepared("multi30k-synthetic").pairs.folder == first
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == times
    assert prepared("multi30k-synthetic", bpe_size=100).pairs.folder != first
    with monkeypatch.context() as patch:
        patch.setattr(fairseq_preprocess, "version", lambda name: "99")
        assert prepared("multi30k-synthetic").pairs.folder != first
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert contents(prepared("multi30k-synthetic").pairs.folder) == written


def test_references_are_the_published_raw_text_or_moses_tokens() -> None:
    raw, tokens = (prepared(f"{name}-synthetic") for name in ("multi30k", "wmt16-en-de"))
    for result, tokenized in ((raw, False), (tokens, True)):
        assert result.tokenized is tokenized
        data = read(locate(result.pairs.name), TranslationData)
        lines = [target for _, target in data.files["test"].pairs()]  # type: ignore[attr-defined]
        assert result.references == tuple(line.replace("@@ ", "") for line in lines)
        assert not any("@@" in line for line in result.references)


def test_the_dictionary_of_pieces_is_limited_and_unknown_tokens_are_counted() -> None:
    full, limited = prepared("wmt16-en-de-synthetic"), prepared("wmt16-en-de-synthetic", max_symbols=16)
    assert full.notes == ()
    assert len(limited.notes) == 6
    assert all("tokens" in note and "outside of the dictionary" in note for note in limited.notes)
    lines = (limited.pairs.folder / "dict.de.txt").read_text().splitlines()
    assert len(lines) == 12
    assert lines == (limited.pairs.folder / "dict.en.txt").read_text().splitlines()


def test_bad_text_leaves_nothing_behind(source: WriteSource, cache: Path) -> None:
    names = [f"{name}.{language}.gz" for name in ("train", "val", "test_2016_flickr") for language in ("en", "de")]
    files = {name: gzip.compress(b"a\n" if name == "train.en.gz" else b"a\nb\n") for name in names}
    located = source("multi30k", files)
    with pytest.raises(InputError, match=r"train\.de\.gz:2: train\.en\.gz has no line 2"):
        prepare(read(located, TranslationData), located.fingerprint(), bpe_size=50, max_symbols=5)
    assert [path.name for path in (cache / "dropbench").iterdir() if path.suffix != ".lock"] == ["fingerprints"]


def test_files_of_a_killed_process_are_removed(cache: Path) -> None:
    folder = prepared("multi30k-synthetic").pairs.folder
    partial = folder.parent / f".{folder.name}.abcdefgh.half"
    partial.mkdir()
    (partial / "train.en-de.en.bin").write_bytes(b"half")
    shutil.rmtree(folder)
    prepared("multi30k-synthetic")
    assert not partial.exists()


def test_a_cache_that_fairseq_cannot_name_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(InputError, match=r"fairseq splits paths at ':': set another folder by XDG_CACHE_HOME"):
        prepared("multi30k-synthetic")
