"""A joint byte pair encoding (Sennrich et al. 2016) of raw text, trained by `tokenizers`.

White space becomes the mark ▁ before each word, and punctuation marks are pieces of their own. Joining the pieces
restores the text without rules of the language.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace, Punctuation, Sequence
from tokenizers.trainers import BpeTrainer

UNKNOWN = "<unk>"


def train_bpe(lines: Iterable[str], size: int) -> Tokenizer:
    """Train one encoding, of `size` pieces and characters, on lines of both languages; it depends on these alone."""
    tokenizer = Tokenizer(BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Sequence([Metaspace(), Punctuation("isolated")])
    trainer = BpeTrainer(vocab_size=size, special_tokens=[UNKNOWN], show_progress=False)
    with _single_thread():
        tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    """Return each line as pieces separated by spaces; a character that training did not see is `UNKNOWN`."""
    with _single_thread():
        return [" ".join(encoded.tokens) for encoded in tokenizer.encode_batch(lines)]


@contextmanager
def _single_thread() -> Iterator[None]:
    """Disable the threads of `tokenizers`: they would live on, and a process with threads cannot fork data loaders."""
    previous = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = previous
