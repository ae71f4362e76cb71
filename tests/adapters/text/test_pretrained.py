"""Test the tokenizer of pre-trained models against the library's calls for single texts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from dropbench.adapters.text import id_cache, pretrained
from dropbench.adapters.text.pretrained import Subwords
from tests.input_errors import one_line
from tests.tasks.test_weights import folder  # noqa: F401 - used by pytest


def test_ids_are_read_again_from_the_cache(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["who runs ?", "", "the dogs , the man", "how is a running dog , man , dog ?"]
    pairs = [(text, other) for text, other in zip(texts, reversed(texts), strict=True)]

    def encoded() -> list[Any]:
        own = Subwords(folder)
        words = [text.split() for text in texts]
        ids = [own.encode(texts), own.encode_pairs(pairs, 9), own.encode_pairs(pairs, 12), own.encode(texts[:3])]
        return [*ids, own.encode_words(words), own.encode_words([*words, ["who runs", "?"]])]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = encoded()
    assert not [*tmp_path.iterdir()], "these are too few"
    monkeypatch.setattr(id_cache, "MIN_TEXTS", 1)
    assert encoded() == expected
    files = sorted(tmp_path.rglob("*.npz"))
    assert len(files) == 6, "texts, pairs by length, and words"
    with monkeypatch.context() as context:
        context.setattr(Subwords, "_encodings", lambda *_, **__: pytest.fail("encoded again"))
        assert encoded() == expected
    content = [file.read_bytes() for file in files]
    flipped = bytes([content[2][200] ^ 1])
    for file, damage in zip(files, (b"", content[1][:-9], content[2][:200] + flipped + content[2][201:]), strict=False):
        file.write_bytes(damage)
    assert encoded() == expected
    assert [file.read_bytes() for file in files] == content
    shutil.rmtree(tmp_path / "dropbench")
    (tmp_path / "dropbench").write_text("no folder")
    assert encoded() == expected


def test_texts_in_batches_have_the_ids_of_the_library_for_each(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pretrained, "BATCH", 2)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_padding(length=40)
    backend.enable_truncation(6)
    backend.save(str(tmp_path / "tokenizer.json"))
    own, library = Subwords(tmp_path), Subwords(folder).tokenizer
    texts = ["who runs ?", "", "the dogs , the man", "where", "how is a running dog , man , dog ?"]
    others = ["a man", "who", "", "what is the man , the dog , the runs .", "the dogs"]
    ids, truncated = own.encode_pairs(list(zip(texts, others, strict=True)), 9)
    for number, pair in enumerate(zip(texts, others, strict=True)):
        single = library(*pair, truncation="longest_first", max_length=9)
        assert {name: rows[number] for name, rows in ids.items()} == {name: single[name] for name in ids}
        assert truncated[number] == (len(library(*pair)["input_ids"]) > 9)
    assert set(truncated) == {False, True}
    assert own.encode(texts) == [library(text)["input_ids"] for text in texts]
    sentences = [text.split() or ["."] for text in texts]
    singles = [library(words, is_split_into_words=True) for words in sentences]
    for words, single, (tokens, first) in zip(sentences, singles, own.encode_words(sentences), strict=True):
        assert tokens == single["input_ids"]
        assert first == [single.word_ids().index(word) for word in range(len(words))]
    options = {"truncation": "only_second", "max_length": 11, "stride": 2, "return_overflowing_tokens": True}
    long = [f"{other} {text} ." for text, other in zip(texts, others, strict=True)]
    for context, (windows, cut) in zip(long, own.encode_windows(["who ?"] * 5, long, 11, 2), strict=True):
        assert not cut
        several = library("who ?", context, return_offsets_mapping=True, **options)
        assert [inputs["input_ids"] for inputs, _ in windows] == several["input_ids"]
        for (_, spans), offsets in zip(windows, several["offset_mapping"], strict=True):
            assert [span for span in spans if span] == offsets[-1 - sum(map(bool, spans)) : -1]


def test_a_folder_without_a_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    """The library makes one instead, to which every word is unknown."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    Subwords(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with one_line("no tokenizer: expected the model's tokenizer.json or vocab.txt"):
        Subwords(tmp_path)
