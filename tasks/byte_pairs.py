"""Byte-level BPE by the tokenizers library: trained on the text itself, or GPT-2's from the user's folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.errors import InputError
from tasks.gpt2_files import gpt2_files

END_OF_TEXT = "<|endoftext|>"
"""Stands behind every document."""
LEAST = 257
"""The bytes and the end of a text."""
TRAINED_ON = 1 << 30
"""Characters of train that a vocabulary is made from, at most."""


def trained(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of at most that many tokens, from the beginning of `texts`; fewer where there is too little text."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(texts), trainer)
    return tokenizer


def gpt2(root: Path, vocabulary: int) -> Tokenizer:
    """GPT-2's tokenizer.

    Raises:
        InputError: its files are missing or are not what they are called, or it has another number of tokens.
    """
    words, merges = gpt2_files(root)
    try:
        ids = json.loads(words.read_text(encoding="utf-8"))
        if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids.values()):
            raise ValueError("expected tokens with their numbers")
        model = models.BPE.from_file(str(words), str(merges))
    except Exception as error:  # the library raises plain exceptions for whatever does not parse
        told = " ".join(str(error).split())
        raise InputError(f"{words} and {merges.name}: no byte-pair encoding of GPT-2's form: {told}") from None
    if END_OF_TEXT not in ids:
        raise InputError(f"{words}: no token {END_OF_TEXT}: expected GPT-2's vocabulary")
    if sorted(ids.values()) != list(range(vocabulary)):
        raise InputError(f"{words}: {len(ids):,} tokens: expected {vocabulary:,}, numbered from 0 (--set vocabulary=…)")
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = sum(1 for line in lines if line and not line.startswith("#version"))
    if pairs != vocabulary - LEAST:
        raise InputError(f"{merges}: {pairs:,} pairs: expected {vocabulary - LEAST:,}, one for each token beyond bytes")
    return _byte_level(model)


def load(file: Path) -> Tokenizer:
    """A tokenizer that was saved here."""
    tokenizer = Tokenizer.from_file(str(file))
    # Whoever writes the end of a text into a text means the characters.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _beginning(texts: Iterable[str]) -> Iterator[str]:
    left = TRAINED_ON
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
