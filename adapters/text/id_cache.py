"""Cache of token ids, one file per tokenizer and texts, in ``$XDG_CACHE_HOME/dropbench/token-ids``.

The trials of a suite encode the same texts: 100,000 pairs take seconds, and from a file a tenth of that.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from tokenizers import Tokenizer

from dropbench.harness.errors import InputError
from dropbench.harness.files import atomic_file, cache_folder

Text = str | tuple[str, str] | list[str]
"""A text, a pair, or the words of a sentence."""
Rows = dict[str, list[list[int]]]
"""The ids of each text by the name of the model's input; of words, also the position of each word's first token."""
RULES = 1
"""Part of the key. Raise it when the same texts give other ids."""
ENDS = ".ends"
"""The end of the name of an array with the end of each text in another array."""
MIN_TEXTS = 5000
"""Fewer texts are encoded about as fast as they are read."""


def cached_ids(backend: Tokenizer, texts: Sequence[Text], how: str, encode: Callable[[], Rows]) -> Rows:
    """Return what `encode` returns, from a file if there is one; a file that is damaged or cannot be written is none.

    Args:
        backend: the tokenizer, without padding and truncation.
        texts: the texts, pairs of them, or sentences of words.
        how: all that determines the ids besides the tokenizer and the texts.
        encode: encodes the texts.
    """
    if len(texts) < MIN_TEXTS:
        return encode()
    file: Path | None = None
    with contextlib.suppress(InputError):  # no home folder
        file = cache_folder() / "token-ids" / f"{_key(backend, texts, how)}.npz"
    if file is not None:
        with contextlib.suppress(OSError, EOFError, ValueError, LookupError, BadZipFile):
            return _read(file, len(texts))
    rows = encode()
    if file is not None:
        with contextlib.suppress(OSError):
            _write(file, rows)
    return rows


def _key(backend: Tokenizer, texts: Sequence[Text], how: str) -> str:
    digest = hashlib.sha256(f"{RULES} {version('tokenizers')} {how} {backend.to_str()}".encode())
    for text in texts:
        digest.update(repr(text).encode())  # which has quotes around each
    return digest.hexdigest()[:32]


def _read(file: Path, count: int) -> Rows:
    rows: Rows = {}
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        for name in (name for name in arrays.files if not name.endswith(ENDS)):
            ids, ends = arrays[name].tolist(), arrays[name + ENDS].tolist()
            rows[name] = [ids[start:end] for start, end in pairwise([0, *ends])]
            if len(rows[name]) != count or len(ids) != ends[-1]:
                raise ValueError(f"{file}: other numbers of texts or ids")
    return rows


def _write(file: Path, rows: Mapping[str, Sequence[Sequence[int]]]) -> None:
    arrays: dict[str, Any] = {}
    for name, each in rows.items():
        ids = np.fromiter(chain.from_iterable(each), np.uint32)
        arrays[name] = ids.astype(np.min_scalar_type(int(ids.max(initial=0))))
        arrays[name + ENDS] = np.cumsum([len(row) for row in each])
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as opened:
        np.savez(opened, **arrays)
