"""Tokens in files: made once, equal to the text, whole or not there."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.errors import InputError
from tasks import byte_pairs, token_files
from tasks.data import Source, locate, read
from tasks.data.language import LanguageData, Piece, Split
from tasks.token_files import TokenFile, Vocabulary, bits_a_byte

BPE = Vocabulary("bpe", 300, "", Path())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dropbench" / "tokens"


@pytest.fixture
def text(tmp_path: Path) -> Callable[[str], Source]:
    def write(content: str) -> Source:
        folder = tmp_path / "text"
        folder.mkdir(exist_ok=True)
        (folder / "a.txt").write_text(content, encoding="utf-8")
        return locate("text", folders={"text": folder})

    return write


LINES = "".join(f"The owl number {line} sees naïve newt {line % 7}.\n" for line in range(400))


@pytest.mark.parametrize("name", ["text-synthetic", "enwiki-synthetic", "wikitext-2-synthetic"])
def test_the_tokens_are_the_text(name: str) -> None:
    source = locate(name)
    made = token_files.token_files(source, BPE)
    end = made.tokenizer.token_to_id(byte_pairs.END_OF_TEXT)
    wanted: dict[Split, str] = {"train": "", "dev": "", "test": ""}
    documents: Counter[str] = Counter()
    data = read(source, LanguageData)
    for piece in data.pieces():
        wanted[piece.split] += piece.text
        documents[piece.split] += piece.last
    for split, tokens in made.tokens.items():
        assert isinstance(tokens, np.memmap)
        assert tokens.dtype == np.uint16
        assert made.tokenizer.decode(tokens.tolist()) == wanted[split]
        assert (tokens == end).sum() == documents[split]
        assert made.sizes[split].tokens == len(tokens)
        assert made.sizes[split].bytes == len(wanted[split].encode())
    assert made.notes == list(data.notes)


def test_the_unigram_model_knows_the_counts_of_train(text: Callable[[str], Source]) -> None:
    made = token_files.token_files(text(LINES), BPE)
    train = Counter(made.tokens["train"].tolist())
    total = sum(train.values()) + BPE.size
    for split, tokens in made.tokens.items():
        wanted = -sum(math.log((train[token] + 1) / total) for token in tokens.tolist()) / len(tokens)
        assert made.sizes[split].unigram_loss == pytest.approx(wanted, rel=1e-12)
    assert made.sizes["train"].unigram_loss < math.log(BPE.size)


def test_bits_a_byte_are_those_of_the_whole_text() -> None:
    size = token_files.SplitSize(tokens=50, bytes=200, unigram_loss=1.0)
    assert bits_a_byte(math.log(256), size) == pytest.approx(8 * 50 / 200)


def test_they_are_made_once_for_each_text_and_tokenizer(text: Callable[[str], Source], cache: Path) -> None:
    first = token_files.token_files(text(LINES), BPE)
    folder = next(path for path in cache.iterdir() if path.is_dir())
    stamp = (folder / "train.npy").stat().st_mtime_ns
    assert token_files.token_files(text(LINES), BPE).tokens["train"].tolist() == first.tokens["train"].tolist()
    assert (folder / "train.npy").stat().st_mtime_ns == stamp
    other = token_files.token_files(text(LINES), Vocabulary("bpe", 310, "", Path()))
    assert len(other.tokens["train"]) < len(first.tokens["train"])
    token_files.token_files(text(LINES + "More.\n"), BPE)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 3


def test_many_at_once_make_them_once(
    text: Callable[[str], Source], cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = text(LINES)
    made: list[Path] = []
    make = token_files._make

    def counted(folder: Path, source: Source, vocabulary: Vocabulary) -> None:
        made.append(folder)
        make(folder, source, vocabulary)

    monkeypatch.setattr(token_files, "_make", counted)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: token_files.token_files(source, BPE).tokens["dev"].tolist(), range(6)))
    assert len(made) == 1
    assert all(tokens == found[0] for tokens in found)
    assert "another process is turning 'text' into tokens: waiting for it" in capsys.readouterr().out
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_one_that_is_stopped_leaves_nothing_and_what_a_killed_one_left_is_cleared(
    text: Callable[[str], Source], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = text(LINES)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(token_files, "_write", stopped)
        with pytest.raises(KeyboardInterrupt):
            token_files.token_files(source, BPE)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
    [lock] = cache.iterdir()
    (cache / f".{lock.stem}.killed").mkdir()
    token_files.token_files(source, BPE)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [lock.stem]


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    with TokenFile(tmp_path / "a.npy", Vocabulary("bpe", 70_000, "", Path())) as file:
        for start in range(0, 70_000, 10_000):
            file.append(list(range(start, start + 10_000)), 3)
    assert np.load(tmp_path / "a.npy").tolist() == list(range(70_000))
    assert np.load(tmp_path / "a.npy").dtype == np.uint32
    assert (file.size, file.bytes) == (70_000, 21)


def test_progress_is_told(
    text: Callable[[str], Source], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(token_files, "SECONDS", 0.0)
    token_files.token_files(text(LINES), BPE)
    assert "tokens so far" in capsys.readouterr().out


def test_too_little_text_is_told(text: Callable[[str], Source], cache: Path) -> None:
    with pytest.raises(InputError, match="data 'text': no text for dev: too little to be parted"):
        token_files.token_files(text("one line\n"), BPE)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_cache_that_cannot_be_written_is_told(
    text: Callable[[str], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot keep the tokens of 'text' there \(XDG_CACHE_HOME") as caught:
        token_files.token_files(text(LINES), BPE)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits on file sizes are a matter of POSIX")
def test_a_full_disk_leaves_nothing_behind(text: Callable[[str], Source], cache: Path) -> None:
    import resource

    source = text(LINES)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(InputError, match="cannot keep the tokens of 'text' there"):
            token_files.token_files(source, BPE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_text_is_turned_into_tokens_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "AT_ONCE", 10)

    def pieces() -> Iterator[Piece]:
        for text in ("abcdef", "ghijkl", "m", "n"):
            yield Piece("train", text, 1, last=False)

    assert [[piece.text for piece in batch] for batch in token_files._batches(pieces())] == [
        ["abcdef", "ghijkl"], ["m", "n"],
    ]  # fmt: skip


def test_what_is_kept_is_read_without_running_anything(text: Callable[[str], Source], cache: Path) -> None:
    token_files.token_files(text(LINES), BPE)
    folder = next(path for path in cache.iterdir() if path.is_dir())
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.json", "dev.npy", "test.npy", "tokenizer.json", "train.npy",
    ]  # fmt: skip
    assert set(json.loads((folder / "about.json").read_text())) == {"splits", "notes"}
    np.save(folder / "dev.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="damaged tokens: delete the folder"):
        token_files.token_files(text(LINES), BPE)
