"""Cache of the tokens of a data set: files written once for each tokenizer, and memory-mapped for reading.

A folder in ``$XDG_CACHE_HOME/dropbench/tokens`` is named by a digest of the data's fingerprint, the tokenizer and the
library versions.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json, write_atomic, write_json
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.check import subset_notes
from dropbench.tasks.data.language.documents import LanguageData, TextChunk
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import read
from dropbench.tasks.data.splits import SPLITS
from dropbench.tasks.data.synthetic_cache import cache_folder, ensure_cached
from dropbench.tasks.language import bpe
from dropbench.tasks.language.spec import LanguageRecipe

# Part of the digest. Increase it when the same text gives other tokens.
RULES = 1
LIBRARIES = ("tokenizers", "mwparserfromhell")
BATCH_CHARS = 8 << 20
"""Minimum number of characters that are tokenized at once."""
PROGRESS_INTERVAL_S = 30.0
"""Time between two progress messages, in seconds."""

Tokens = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class SplitSize:
    """The size of a split.

    Attributes:
        tokens: number of tokens, including those that end documents.
        bytes: size of the text in UTF-8.
        unigram_loss: nats per token of a unigram model of train with add-one smoothing.
    """

    tokens: int
    bytes: int
    unigram_loss: float


@dataclass(frozen=True, eq=False)
class CachedTokens:
    """Memory-mapped tokens (N,) and sizes of the splits, their tokenizer, and notes on the data."""

    tokens: dict[Split, Tokens]
    sizes: dict[Split, SplitSize]
    tokenizer: Tokenizer
    notes: list[str]


def load_tokens(source: Source, recipe: LanguageRecipe, root: Path) -> CachedTokens:
    """Return the tokens of a data set by the recipe's tokenizer, and write them first if they are not cached.

    `root` is the data root, which has the files of GPT-2's tokenizer.

    Raises:
        InputError: the data or the tokenizer's files are damaged, a split has no text, or the cache cannot be written.
    """
    key_fields = {
        "rules": RULES,
        "fingerprint": source.fingerprint(),
        "tokenizer": recipe.tokenizer,
        "vocabulary": recipe.vocabulary,
        "digest": recipe.tokenizer_digest or "",
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    key = hashlib.sha256(canonical_json(key_fields).encode()).hexdigest()[:12]
    folder = cache_folder(source.name) / "tokens" / f"{source.name}-{key}"
    waiting = f"waiting for another process that is tokenizing '{source.name}'\n"
    ensure_cached(
        folder, lambda empty: _write_cache(empty, source, recipe, root), f"the tokens of '{source.name}'", waiting
    )
    return _open_cache(folder)


def _write_cache(folder: Path, source: Source, recipe: LanguageRecipe, root: Path) -> None:
    size = recipe.vocabulary
    data = read(source, LanguageData)
    if recipe.tokenizer == "gpt2":
        tokenizer = bpe.load_gpt2(root, size)
    else:
        print(f"training a tokenizer of {size:,} tokens on the train text of '{data.name}'", flush=True)
        texts = (chunk.text for chunk in data.chunks() if chunk.split == "train")
        tokenizer = bpe.train(texts, size)
    write_atomic(folder / "tokenizer.json", tokenizer.to_str().encode())
    with ExitStack() as stack:
        files = {split: stack.enter_context((folder / f"{split}.npy").open("wb")) for split in SPLITS}
        writers = {split: TokenWriter(file, size) for split, file in files.items()}
        _write_tokens(data, tokenizer, writers)
        for split, writer in writers.items():
            writer.write_header()
            if not writer.size:
                raise InputError(f"data '{source.name}': no text for {split}: too little text to split")
    train = writers["train"].counts
    sizes = {split: asdict(writer.split_size(train)) for split, writer in writers.items()}
    write_json(folder / "about.json", {"splits": sizes, "notes": [*data.notes, *subset_notes(source, data)]})


def _write_tokens(data: LanguageData, tokenizer: Tokenizer, files: dict[Split, TokenWriter]) -> None:
    end = cast(int, tokenizer.token_to_id(bpe.END_OF_TEXT))
    last_message = time.monotonic()
    for chunks in _batches(data.chunks()):
        encoded = tokenizer.encode_batch_fast([chunk.text for chunk in chunks], add_special_tokens=False)
        for chunk, tokens in zip(chunks, encoded, strict=True):
            files[chunk.split].append([*tokens.ids, end] if chunk.last else tokens.ids, len(chunk.text.encode()))
        if time.monotonic() - last_message > PROGRESS_INTERVAL_S:
            last_message = time.monotonic()
            print(f"'{data.name}': {sum(file.size for file in files.values()):,} tokens so far", flush=True)


def _batches(chunks: Iterator[TextChunk]) -> Iterator[list[TextChunk]]:
    batch: list[TextChunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class TokenWriter:
    """A writer of a one-dimensional ``.npy`` file of growing length, which also counts its tokens."""

    def __init__(self, file: BinaryIO, vocabulary: int) -> None:
        self.file = file
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.counts = np.zeros(vocabulary, np.int64)
        self.size = self.bytes = 0
        self.write_header()

    def write_header(self) -> None:
        """Write the header for the tokens so far, before the first and after the last; its length is fixed."""
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.size,)}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, ids: list[int], num_bytes: int) -> None:
        """Append the tokens of a text of `num_bytes` bytes."""
        tokens = np.array(ids, self.dtype)
        self.file.write(tokens.tobytes())
        self.counts += np.bincount(tokens, minlength=len(self.counts))
        self.size += len(tokens)
        self.bytes += num_bytes

    def split_size(self, train_counts: NDArray[np.int64]) -> SplitSize:
        """Return the size of the split, with its unigram loss under the token counts of train."""
        log_probs = np.log((train_counts + 1) / (train_counts.sum() + len(train_counts)))
        return SplitSize(self.size, self.bytes, float(-(self.counts @ log_probs) / self.size))


def _open_cache(folder: Path) -> CachedTokens:
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        tokens = {split: np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False) for split in SPLITS}
        sizes = {split: SplitSize(**about["splits"][split]) for split in SPLITS}
        return CachedTokens(tokens, sizes, bpe.load(folder / "tokenizer.json"), about["notes"])
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{folder}: damaged tokens: delete the folder, and they are written again") from None


def bits_per_byte(loss: float, size: SplitSize) -> float:
    """Convert a loss in nats per token to bits per byte of text, which is comparable across tokenizers."""
    return loss / math.log(2) * size.tokens / size.bytes
