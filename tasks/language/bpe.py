"""Byte-level BPE by the tokenizers library: trained on the data, or GPT-2's from the user's files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dropbench.harness.errors import InputError
from dropbench.tasks.language.gpt2_files import gpt2_files

END_OF_TEXT = "<|endoftext|>"
"""The token at the end of every document."""
NUM_BASE_TOKENS = 257
"""The 256 bytes and `END_OF_TEXT`."""
MAX_TRAIN_CHARS = 1 << 30
"""Maximum number of characters of train that a tokenizer is trained on."""


def train(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a tokenizer of `vocabulary` tokens, or fewer for short data, on the beginning of `texts`."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(texts), trainer)
    return tokenizer


def load_gpt2(root: Path, vocabulary: int) -> Tokenizer:
    """Load GPT-2's tokenizer; raise InputError if its files are missing, malformed, or have other numbers of tokens."""
    vocab, merges = gpt2_files(root)
    try:
        ids = json.loads(vocab.read_text(encoding="utf-8"))
        if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids.values()):
            raise ValueError("expected tokens with their ids")
        model = models.BPE.from_file(str(vocab), str(merges))
    except Exception as error:  # the library raises plain exceptions for files that do not parse
        reason = " ".join(str(error).split())
        raise InputError(f"{vocab} and {merges.name}: not a byte-pair encoding in GPT-2's format: {reason}") from None
    if END_OF_TEXT not in ids:
        raise InputError(f"{vocab}: no token {END_OF_TEXT}: expected GPT-2's vocabulary")
    if sorted(ids.values()) != list(range(vocabulary)):
        raise InputError(
            f"{vocab}: {len(ids):,} tokens: expected {vocabulary:,}, numbered from 0 (`--set vocabulary=…`)"
        )
    lines = merges.read_text(encoding="utf-8").split("\n")
    num_merges = sum(1 for line in lines if line and not line.startswith("#version"))
    expected = vocabulary - NUM_BASE_TOKENS
    if num_merges != expected:
        raise InputError(f"{merges}: {num_merges:,} merges: expected {expected:,}, one per token beyond bytes")
    return _byte_level(model)


def load(file: Path) -> Tokenizer:
    """Load a tokenizer that was saved by DropBench."""
    tokenizer = Tokenizer.from_file(str(file))
    # An end token that is spelled out in a text is encoded as plain characters.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _beginning(texts: Iterable[str]) -> Iterator[str]:
    remaining = MAX_TRAIN_CHARS
    for text in texts:
        yield text[:remaining]
        remaining -= len(text)
        if remaining <= 0:
            return
