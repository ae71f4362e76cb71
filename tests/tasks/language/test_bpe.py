"""Test byte-level BPE: trained tokenizers, and GPT-2's from valid and malformed files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.language import bpe
from dropbench.tasks.language.gpt2_files import gpt2_files
from tests.input_errors import one_line
from tests.tasks.language.gpt2_files import TEXT, TEXTS, gpt2_folder


def test_decoding_restores_every_text() -> None:
    tokenizer = bpe.train(TEXTS, 300)
    assert tokenizer.get_vocab_size() == 300
    for text in (*TEXTS[:3], "unseen: ÿ\0\t\r\n  \U0001f600", "", "<|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_end_token_in_a_text_is_encoded_as_characters(tmp_path: Path) -> None:
    tokenizer = bpe.train(TEXTS, 300)
    end = tokenizer.token_to_id(bpe.END_OF_TEXT)
    assert end is not None
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for instance in (tokenizer, bpe.load(tmp_path / "tokenizer.json")):
        assert end not in instance.encode(f"an {bpe.END_OF_TEXT} in a text").ids


def test_a_tokenizer_is_trained_on_the_beginning_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "MAX_TRAIN_CHARS", len(TEXTS[0]) + 5)

    def texts() -> object:
        yield TEXTS[0]
        yield TEXTS[1]
        raise AssertionError("a third text is not needed")

    tokenizer = bpe.train(texts(), 300)  # type: ignore[arg-type]
    assert tokenizer.to_str() == bpe.train([TEXTS[0], TEXTS[1][:5]], 300).to_str()


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_gpt2s_files_give_gpt2s_tokens(tmp_path: Path, names: tuple[str, str]) -> None:
    from transformers import GPT2Tokenizer

    folder = gpt2_folder(tmp_path)
    for old, new in zip(("vocab.json", "merges.txt"), names, strict=True):
        (folder / old).rename(folder / new)
    theirs = GPT2Tokenizer(*(str(folder / name) for name in names))
    ours = bpe.load_gpt2(tmp_path, 300)
    assert ours.token_to_id(bpe.END_OF_TEXT) == 299
    for text in (TEXT, "  two  spaces\n\n and 'll don't", "Ünïcödé 漢"):
        assert ours.encode(text).ids == theirs.encode(text)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", "not json", "not a byte-pair encoding in GPT-2's format"),
        ("vocab.json", '{"a": "b"}', "expected tokens with their ids"),
        ("vocab.json", '{"a": 0}', "not a byte-pair encoding in GPT-2's format"),
        ("merges.txt", "#version: 0.2\none two three\n", "not a byte-pair encoding in GPT-2's format"),
        ("merges.txt", "", r"merges\.txt: 0 merges: expected 43"),
        ("vocab.json", '{"t": 0, "h": 1, "th": 2}', "not a byte-pair encoding|no token"),
    ],
)
def test_malformed_files_raise_an_error_of_one_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = gpt2_folder(tmp_path)
    (folder / file).write_text(content, encoding="latin-1")
    with one_line(message):
        bpe.load_gpt2(tmp_path, 300)


def test_missing_files_and_another_number_of_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected vocab\.json and merges\.txt in .*huggingface.*tokenizer=bpe"):
        gpt2_files(tmp_path)
    gpt2_folder(tmp_path)
    with pytest.raises(InputError, match=r"300 tokens: expected 50,257, numbered from 0 \(`--set vocabulary=…`\)"):
        bpe.load_gpt2(tmp_path, 50_257)
