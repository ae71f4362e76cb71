"""The tokens of a data set in files, made once for each tokenizer and read by mapping them into memory.

They lie in ``$XDG_CACHE_HOME/dropbench/tokens``, in a folder that is named by what they depend on: the fingerprint of
the data, the tokenizer, the versions of the libraries. It is written beside and renamed, by one process while others
wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from harness.errors import InputError
from harness.files import canonical_json, write_atomic, write_json
from tasks import byte_pairs
from tasks.data.check import subset_notes
from tasks.data.language import SPLITS, LanguageData, Piece, Split
from tasks.data.locate import Source
from tasks.data.read import read
from tasks.data.synthetic import cache_folder

# Part of every folder's name. Raise it when other tokens come of the same text.
RULES = 1
LIBRARIES = ("tokenizers", "mwparserfromhell")
AT_ONCE = 8 << 20
"""Characters that are turned into tokens at once."""
SECONDS = 30.0
"""Between two lines of progress."""

Tokens = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer: trained on the text ("bpe"), or GPT-2's below `root`, whose files have that digest."""

    kind: str
    size: int
    digest: str
    root: Path


@dataclass(frozen=True)
class SplitSize:
    """How much a split is.

    Attributes:
        tokens: with those that end documents.
        bytes: of the text in UTF-8.
        unigram_loss: nats a token of the model that knows how often each token is in train, each counted once more.
    """

    tokens: int
    bytes: int
    unigram_loss: float


@dataclass(frozen=True, eq=False)
class TokenFiles:
    """Tokens of the three splits (N,), mapped read-only; the tokenizer that made them; what was noted on the way."""

    tokens: dict[Split, Tokens]
    sizes: dict[Split, SplitSize]
    tokenizer: Tokenizer
    notes: list[str]


def token_files(source: Source, vocabulary: Vocabulary) -> TokenFiles:
    """The tokens of a data set, made now if they are not there.

    Raises:
        InputError: the data or the tokenizer's files are damaged, a split has no text, the cache cannot be written.
    """
    about = {
        "rules": RULES,
        "fingerprint": source.fingerprint(),
        "tokenizer": vocabulary.kind,
        "vocabulary": vocabulary.size,
        "digest": vocabulary.digest,
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    key = hashlib.sha256(canonical_json(about).encode()).hexdigest()[:12]
    folder = cache_folder() / "tokens" / f"{source.name}-{key}"
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _alone(folder.with_suffix(".lock"), source.name):
                if not folder.is_dir():
                    _make(folder, source, vocabulary)
        return _opened(folder)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}: cannot keep the tokens of '{source.name}' there"
            " (XDG_CACHE_HOME sets another place)"
        ) from None


@contextmanager
def _alone(lock: Path, name: str) -> Iterator[None]:
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is turning '{name}' into tokens: waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, source: Source, vocabulary: Vocabulary) -> None:
    for left in folder.parent.glob(f".{folder.name}.*"):  # by a process that was killed; nobody else has the lock
        shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        data = read(source, LanguageData)
        tokenizer = _tokenizer(data, vocabulary)
        write_atomic(unfinished / "tokenizer.json", tokenizer.to_str().encode())
        with ExitStack() as stack:
            written = {
                split: stack.enter_context(TokenFile(unfinished / f"{split}.npy", vocabulary)) for split in SPLITS
            }
            _write(data, tokenizer, written)
        for split, file in written.items():
            if not file.size:
                raise InputError(f"data '{source.name}': no text for {split}: too little to be parted")
        train = written["train"].counts
        sizes = {split: asdict(file.measured(train)) for split, file in written.items()}
        write_json(unfinished / "about.json", {"splits": sizes, "notes": [*data.notes, *subset_notes(source, data)]})
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _tokenizer(data: LanguageData, vocabulary: Vocabulary) -> Tokenizer:
    if vocabulary.kind == "gpt2":
        return byte_pairs.gpt2(vocabulary.root, vocabulary.size)
    print(f"making a vocabulary of {vocabulary.size:,} from the train text of '{data.name}'", flush=True)
    return byte_pairs.trained((piece.text for piece in data.pieces() if piece.split == "train"), vocabulary.size)


def _write(data: LanguageData, tokenizer: Tokenizer, files: dict[Split, TokenFile]) -> None:
    end = cast(int, tokenizer.token_to_id(byte_pairs.END_OF_TEXT))
    told = time.monotonic()
    for pieces in _batches(data.pieces()):
        encoded = tokenizer.encode_batch_fast([piece.text for piece in pieces], add_special_tokens=False)
        for piece, tokens in zip(pieces, encoded, strict=True):
            files[piece.split].append([*tokens.ids, end] if piece.last else tokens.ids, len(piece.text.encode()))
        if time.monotonic() - told > SECONDS:
            told = time.monotonic()
            print(f"'{data.name}': {sum(file.size for file in files.values()):,} tokens so far", flush=True)


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class TokenFile:
    """A ``.npy`` file of one axis that grows while it is written; also counts its tokens."""

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        self.path = path
        self.dtype = np.dtype(np.uint16 if vocabulary.size <= 1 << 16 else np.uint32)
        self.counts = np.zeros(vocabulary.size, np.int64)
        self.size = self.bytes = 0

    def __enter__(self) -> TokenFile:
        self.file: BinaryIO = self.path.open("wb")
        self._header()
        return self

    def __exit__(self, *error: object) -> None:
        with self.file:
            self.file.seek(0)
            self._header()  # NumPy leaves room in it for any number

    def append(self, ids: list[int], count: int) -> None:
        """Add tokens, which stand for that many bytes of text."""
        tokens = np.array(ids, self.dtype)
        self.file.write(tokens.tobytes())
        self.counts += np.bincount(tokens, minlength=len(self.counts))
        self.size += len(tokens)
        self.bytes += count

    def measured(self, train: NDArray[np.int64]) -> SplitSize:
        """The size of what was written, and its loss by the counts of train."""
        logs = np.log((train + 1) / (train.sum() + len(train)))
        return SplitSize(self.size, self.bytes, float(-(self.counts @ logs) / self.size))

    def _header(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self.file, header)


def _opened(folder: Path) -> TokenFiles:
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        tokens: dict[Split, Tokens] = {
            split: np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False) for split in SPLITS
        }
        sizes = {split: SplitSize(**about["splits"][split]) for split in SPLITS}
        tokenizer = byte_pairs.load(folder / "tokenizer.json")
        return TokenFiles(tokens, sizes, tokenizer, about["notes"])
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{folder}: damaged tokens: delete the folder, and they are made again") from None


def bits_a_byte(loss: float, size: SplitSize) -> float:
    """A loss in nats a token as bits a byte of the text, which vocabularies of any size share."""
    return loss / math.log(2) * size.tokens / size.bytes
