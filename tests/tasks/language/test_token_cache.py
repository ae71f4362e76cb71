"""Test the token cache: content, single writing, locking, and failures that leave nothing behind."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Split
from dropbench.tasks.data import Source, locate, read
from dropbench.tasks.data.language.documents import LanguageData
from dropbench.tasks.language import bpe, token_cache
from dropbench.tasks.language.spec import LanguageRecipe
from dropbench.tasks.language.token_cache import TokenWriter
from tests.input_errors import one_line
from tests.patience import wait

BPE = LanguageRecipe(steps=1, vocabulary=300)


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
def test_the_tokens_decode_to_the_text(name: str) -> None:
    source = locate(name)
    cached = token_cache.load_tokens(source, BPE, Path())
    end = cached.tokenizer.token_to_id(bpe.END_OF_TEXT)
    expected: dict[Split, str] = {"train": "", "dev": "", "test": ""}
    documents: Counter[str] = Counter()
    data = read(source, LanguageData)
    for chunk in data.chunks():
        expected[chunk.split] += chunk.text
        documents[chunk.split] += chunk.last
    for split, tokens in cached.tokens.items():
        assert isinstance(tokens, np.memmap)
        assert tokens.dtype == np.uint16
        assert cached.tokenizer.decode(tokens.tolist()) == expected[split]
        assert (tokens == end).sum() == documents[split]
        assert cached.sizes[split].tokens == len(tokens)
        assert cached.sizes[split].bytes == len(expected[split].encode())
    assert cached.notes == list(data.notes)


def test_the_unigram_loss_uses_the_counts_of_train(text: Callable[[str], Source]) -> None:
    cached = token_cache.load_tokens(text(LINES), BPE, Path())
    train = Counter(cached.tokens["train"].tolist())
    total = sum(train.values()) + BPE.vocabulary
    for split, tokens in cached.tokens.items():
        expected = -sum(math.log((train[token] + 1) / total) for token in tokens.tolist()) / len(tokens)
        assert cached.sizes[split].unigram_loss == pytest.approx(expected, rel=1e-12)
    assert cached.sizes["train"].unigram_loss < math.log(BPE.vocabulary)


def test_tokens_are_written_once_for_each_text_and_tokenizer(
    text: Callable[[str], Source], cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(token_cache, "PROGRESS_INTERVAL_S", 0.0)
    first = token_cache.load_tokens(text(LINES), BPE, Path())
    assert "tokens so far" in capsys.readouterr().out
    folder = next(path for path in cache.iterdir() if path.is_dir())
    stamp = (folder / "train.npy").stat().st_mtime_ns
    assert token_cache.load_tokens(text(LINES), BPE, Path()).tokens["train"].tolist() == first.tokens["train"].tolist()
    assert (folder / "train.npy").stat().st_mtime_ns == stamp
    larger = token_cache.load_tokens(text(LINES), LanguageRecipe(steps=1, vocabulary=310), Path())
    assert len(larger.tokens["train"]) < len(first.tokens["train"])
    token_cache.load_tokens(text(LINES + "More.\n"), BPE, Path())
    monkeypatch.setattr(token_cache, "version", lambda name: "99")  # of a library
    token_cache.load_tokens(text(LINES), BPE, Path())
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 4


def test_concurrent_readers_write_the_tokens_once(
    text: Callable[[str], Source], cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = text(LINES)
    written: list[Path] = []
    printed: list[str] = []
    write = token_cache._write_cache

    def another_waits() -> bool:
        printed.append(capsys.readouterr().out)
        return "waiting for another process that is tokenizing 'text'" in "".join(printed)

    def record(folder: Path, *arguments: Any) -> None:
        written.append(folder)
        wait(another_waits, "a second reader")
        write(folder, *arguments)

    monkeypatch.setattr(token_cache, "_write_cache", record)
    with ThreadPoolExecutor(6) as pool:
        results = list(
            pool.map(lambda _: token_cache.load_tokens(source, BPE, Path()).tokens["dev"].tolist(), range(6))
        )
    assert len(written) == 1
    assert all(tokens == results[0] for tokens in results)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        writer = TokenWriter(file, 70_000)
        for start in range(0, 70_000, 10_000):
            writer.append(list(range(start, start + 10_000)), 3)
        writer.write_header()
    assert np.load(tmp_path / "a.npy").tolist() == list(range(70_000))
    assert np.load(tmp_path / "a.npy").dtype == np.uint32
    assert (writer.size, writer.bytes) == (70_000, 21)


def test_too_little_text_is_refused(text: Callable[[str], Source], cache: Path) -> None:
    with pytest.raises(InputError, match="data 'text': no text for dev: too little text to split"):
        token_cache.load_tokens(text("one line\n"), BPE, Path())
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_an_unwritable_cache_is_reported(
    text: Callable[[str], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with one_line("cannot write the tokens of 'text': set another cache folder"):
        token_cache.load_tokens(text(LINES), BPE, Path())


def test_cached_files_are_read_without_pickle(text: Callable[[str], Source], cache: Path) -> None:
    token_cache.load_tokens(text(LINES), BPE, Path())
    folder = next(path for path in cache.iterdir() if path.is_dir())
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.json", "dev.npy", "test.npy", "tokenizer.json", "train.npy",
    ]  # fmt: skip
    assert set(json.loads((folder / "about.json").read_text())) == {"splits", "notes"}
    np.save(folder / "dev.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="damaged tokens: delete the folder"):
        token_cache.load_tokens(text(LINES), BPE, Path())
