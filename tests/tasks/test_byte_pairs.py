"""Tokenizers: trained ones, and GPT-2's from files that may be anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError
from tasks import byte_pairs
from tasks.gpt2_files import gpt2_digest, gpt2_files
from tests.tasks.gpt2_files import TEXT, TEXTS, gpt2_folder


def test_every_text_comes_back() -> None:
    tokenizer = byte_pairs.trained(TEXTS, 300)
    assert tokenizer.get_vocab_size() == 300
    for text in (*TEXTS[:3], "unseen: ÿ\0\t\r\n  \U0001f600", "", "<|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_it_is_a_function_of_the_text() -> None:
    first, second = (byte_pairs.trained(iter(TEXTS), 400).to_str() for _ in range(2))
    assert first == second
    assert byte_pairs.trained(TEXTS[:30], 400).to_str() != first


def test_the_end_of_a_text_is_no_text(tmp_path: Path) -> None:
    tokenizer = byte_pairs.trained(TEXTS, 300)
    end = tokenizer.token_to_id(byte_pairs.END_OF_TEXT)
    assert end is not None
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for one in (tokenizer, byte_pairs.load(tmp_path / "tokenizer.json")):
        assert end not in one.encode(f"an {byte_pairs.END_OF_TEXT} in a text").ids


def test_a_vocabulary_is_made_from_the_beginning_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_pairs, "TRAINED_ON", len(TEXTS[0]) + 5)

    def texts() -> object:
        yield TEXTS[0]
        yield TEXTS[1]
        raise AssertionError("nobody needs a third one")

    found = byte_pairs.trained(texts(), 300)  # type: ignore[arg-type]
    assert found.to_str() == byte_pairs.trained([TEXTS[0], TEXTS[1][:5]], 300).to_str()


def test_what_is_wrong_with_the_text_comes_through() -> None:
    def texts() -> object:
        yield TEXTS[0]
        raise InputError("file:3: no text")

    with pytest.raises(InputError, match="file:3: no text"):
        byte_pairs.trained(texts(), 300)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_gpt2s_files_give_gpt2s_tokens(tmp_path: Path, names: tuple[str, str]) -> None:
    from transformers import GPT2Tokenizer

    folder = gpt2_folder(tmp_path)
    for old, new in zip(("vocab.json", "merges.txt"), names, strict=True):
        (folder / old).rename(folder / new)
    theirs = GPT2Tokenizer(*(str(folder / name) for name in names))
    ours = byte_pairs.gpt2(tmp_path, 300)
    assert ours.token_to_id(byte_pairs.END_OF_TEXT) == 299
    for text in (TEXT, "  two  spaces\n\n and 'll don't", "Ünïcödé 漢"):
        assert ours.encode(text).ids == theirs.encode(text)


def test_their_digest_is_that_of_their_content(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "one")
    gpt2_folder(tmp_path / "two")
    assert gpt2_digest(tmp_path / "one") == gpt2_digest(tmp_path / "two")
    before = gpt2_digest(tmp_path / "one")
    with (folder / "merges.txt").open("a") as file:
        file.write("a b\n")
    assert gpt2_digest(tmp_path / "one") != before


def test_missing_files_are_told_with_where_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "vocab.json").write_text("{}")
    with pytest.raises(InputError, match=r"expected vocab\.json and merges\.txt in .*gpt2 .*huggingface") as caught:
        gpt2_files(tmp_path)
    assert "--set tokenizer=bpe" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", "not json", "no byte-pair encoding of GPT-2's form"),
        ("vocab.json", "[1, 2]", "expected tokens with their numbers"),
        ("vocab.json", '{"a": "b"}', "expected tokens with their numbers"),
        ("vocab.json", '{"a": 0}', "no byte-pair encoding of GPT-2's form"),
        ("merges.txt", "#version: 0.2\none two three\n", "no byte-pair encoding of GPT-2's form"),
        ("merges.txt", "\x00\xff", "no byte-pair encoding of GPT-2's form"),
        ("merges.txt", "", r"merges\.txt: 0 pairs: expected 43"),
        ("vocab.json", '{"t": 0, "h": 1, "th": 2}', "no byte-pair encoding|no token"),
    ],
)
def test_files_that_are_something_else_are_one_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = gpt2_folder(tmp_path)
    (folder / file).write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=message) as caught:
        byte_pairs.gpt2(tmp_path, 300)
    assert "\n" not in str(caught.value)


def test_merges_that_were_cut_short_are_refused(tmp_path: Path) -> None:
    merges = gpt2_folder(tmp_path) / "merges.txt"
    merges.write_text("\n".join(merges.read_text().split("\n")[:11]) + "\n")
    with pytest.raises(InputError, match="10 pairs: expected 43, one for each token beyond bytes"):
        byte_pairs.gpt2(tmp_path, 300)


def test_another_number_of_tokens_is_refused(tmp_path: Path) -> None:
    gpt2_folder(tmp_path)
    with pytest.raises(InputError, match=r"300 tokens: expected 50,257, numbered from 0 \(--set vocabulary=…\)"):
        byte_pairs.gpt2(tmp_path, 50_257)
