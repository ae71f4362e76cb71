"""From text to what fairseq trains on: once, whole, and the same for the same files."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.errors import InputError
from tasks.data import Source, locate, read
from tasks.data.binarise import Prepared, joined, prepare
from tasks.data.parallel import TranslationData
from tasks.data.pieces import cut, learn_pieces

WriteSource = Callable[[str, Mapping[str, bytes]], Source]
SENTENCES = ("Ein Mann geht, z.B. nach Köln-Nord.", "Zwei Hunde laufen.", "Ein Hund läuft nach Köln.")


def prepared(name: str, **options: int) -> Prepared:
    source = locate(name)
    return prepare(read(source, TranslationData), source.fingerprint(), **{"pieces": 120, "symbols": 32_768, **options})


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_pieces_joined_are_the_text_again() -> None:
    pieces = learn_pieces(SENTENCES, 60)
    for line, parts in zip(SENTENCES, cut(pieces, list(SENTENCES)), strict=True):
        assert len(parts.split()) > len(line.split())
        assert parts.replace(" ", "").replace("\u2581", " ").strip() == line
    assert all("," not in piece or piece == "," for piece in pieces.get_vocab())
    assert cut(pieces, ["Ein Ω"])[0].split()[-1] == "<unk>"


def test_pieces_are_the_same_in_another_process() -> None:
    code = f"from tasks.data.pieces import learn_pieces; print(learn_pieces({SENTENCES!r}, 60).to_str())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == learn_pieces(SENTENCES, 60).to_str()


@pytest.mark.parametrize("line", ["a@@ b c@@ d@@ e .", "a b@@", "", "@@ a", "a@@b @@", "a@@"])
def test_words_are_joined_as_fairseq_joins_them(line: str) -> None:
    from fairseq.data.data_utils import post_process

    assert joined(line) == post_process(line, "@@ ")


def test_it_is_made_once_and_the_same_again(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepared("multi30k-synthetic").pairs.folder
    made = contents(first)
    assert {"dict.en.txt", "dict.de.txt", "train.en-de.en.bin", "valid.en-de.de.idx", "test.reference"} <= set(made)
    assert not {"text", "preprocess.log"} & set(made)
    times = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert prepared("multi30k-synthetic").pairs.folder == first
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == times
    assert prepared("multi30k-synthetic", pieces=100).pairs.folder != first
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert contents(prepared("multi30k-synthetic").pairs.folder) == made


def test_many_at_once_make_it_once(cache: Path) -> None:
    locate("wmt16-en-de-synthetic")
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: prepared("wmt16-en-de-synthetic").pairs.folder, range(4)))
    assert len(folders) == 1
    assert [path.name for path in (cache / "dropbench").glob(".*.half")] == []


def test_references_are_what_people_or_moses_wrote() -> None:
    raw, tokens = (prepared(f"{name}-synthetic") for name in ("multi30k", "wmt16-en-de"))
    for found, tokenised in ((raw, False), (tokens, True)):
        assert found.tokenised is tokenised
        data = read(locate(found.pairs.name), TranslationData)
        lines = [target for _, target in data.files["test"].pairs()]  # type: ignore[attr-defined]
        assert found.references == tuple(line.replace("@@ ", "") for line in lines)
        assert not any("@@" in line for line in found.references)


def test_the_dictionary_of_pieces_is_cut_and_what_it_lacks_is_counted() -> None:
    whole, part = prepared("wmt16-en-de-synthetic"), prepared("wmt16-en-de-synthetic", symbols=16)
    assert whole.notes == ()
    assert len(part.notes) == 6
    assert all("tokens" in note and "are not in the dictionary" in note for note in part.notes)
    lines = (part.pairs.folder / "dict.de.txt").read_text().splitlines()
    assert len(lines) == 12
    assert lines == (part.pairs.folder / "dict.en.txt").read_text().splitlines()


def test_a_character_that_train_lacks_is_counted(source: WriteSource) -> None:
    files = {}
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            text = "Ein Ω.\n" if name.startswith("test") else "Ein Hund.\nZwei Hunde.\n"
            files[f"{name}.{language}.gz"] = gzip.compress(text.encode())
    found = source("multi30k", files)
    notes = prepare(read(found, TranslationData), found.fingerprint(), pieces=50, symbols=5).notes
    # The mark in front of the word stands alone, which it never does in train.
    assert [note.split(" (")[0] for note in notes] == ["2 tokens", "2 tokens"]
    assert [note.split(" of ")[1] for note in notes] == [
        f"test.{one} are not in the dictionary" for one in ("en", "de")
    ]


def test_bad_text_leaves_nothing_behind(source: WriteSource, cache: Path) -> None:
    names = [f"{name}.{language}.gz" for name in ("train", "val", "test_2016_flickr") for language in ("en", "de")]
    files = {name: gzip.compress(b"a\n" if name == "train.en.gz" else b"a\nb\n") for name in names}
    found = source("multi30k", files)
    with pytest.raises(InputError, match=r"train\.de\.gz:2: train\.en\.gz has no line 2"):
        prepare(read(found, TranslationData), found.fingerprint(), pieces=50, symbols=5)
    assert [path.name for path in (cache / "dropbench").iterdir() if path.suffix != ".lock"] == []


def test_what_a_killed_process_left_is_swept(cache: Path) -> None:
    folder = prepared("multi30k-synthetic").pairs.folder
    half = folder.parent / f".{folder.name}.abcdefgh.half"
    half.mkdir()
    (half / "train.en-de.en.bin").write_bytes(b"half")
    prepared("multi30k-synthetic")
    assert not half.exists()


def test_a_cache_that_fairseq_cannot_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(InputError, match=r"fairseq takes ':' for the end of a path \(XDG_CACHE_HOME"):
        prepared("multi30k-synthetic")


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = locate("multi30k-synthetic")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot keep the binarised multi30k-synthetic \(XDG_CACHE_HOME"):
        prepare(read(source, TranslationData), "0", pieces=50, symbols=5)
