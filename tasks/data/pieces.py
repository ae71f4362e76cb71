"""A joint byte pair encoding (Sennrich et al. 2016) of raw text, learnt by `tokenizers`.

White space becomes the mark ▁ in front of each word, and marks of punctuation stand alone, so that the pieces joined
give the text back: no rules of a language are needed in either direction.
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


def learn_pieces(lines: Iterable[str], size: int) -> Tokenizer:
    """Pieces of all lines together, the same for the same lines.

    Args:
        lines: of both languages.
        size: number of different pieces, characters among them.
    """
    pieces = Tokenizer(BPE(unk_token=UNKNOWN))
    pieces.pre_tokenizer = Sequence([Metaspace(), Punctuation("isolated")])
    trainer = BpeTrainer(vocab_size=size, special_tokens=[UNKNOWN], show_progress=False)
    with _one_thread():
        pieces.train_from_iterator(lines, trainer)
    return pieces


def cut(pieces: Tokenizer, lines: list[str]) -> list[str]:
    """Each line as its pieces with spaces between; a character that nobody has seen is `UNKNOWN`."""
    with _one_thread():
        return [" ".join(encoded.tokens) for encoded in pieces.encode_batch(lines)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Its threads would outlive this, and a process with threads cannot be forked into loaders of data."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before
