"""Test the tokenizer of pre-trained models against the library's calls for single texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from dropbench.adapters.text import pretrained
from dropbench.adapters.text.pretrained import Subwords
from tests.tasks.test_weights import folder  # noqa: F401 - used by pytest


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
