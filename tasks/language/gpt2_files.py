"""The two files of GPT-2's byte-pair encoding, which the user provides."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from harness.errors import InputError

FOLDER = "gpt2"
FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the vocabulary and the merges: those of transformers, and those of OpenAI."""
HOME = "https://huggingface.co/openai-community/gpt2"


def gpt2_files(root: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's vocabulary and merges in the folder ``gpt2`` of the data root.

    Raises:
        InputError: they are missing; the message says how to obtain them.
    """
    folder = root / FOLDER
    for names in FILES:
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise InputError(
        f"tokenizer=gpt2: expected {' and '.join(FILES[0])} in {folder} (set DROPBENCH_DATA for another folder); get"
        f" them from {HOME}, or train a tokenizer with `--set tokenizer=bpe`"
    )


def gpt2_digest(root: Path) -> str:
    """Return a digest of both files for a trial's recipe; raises InputError if they are missing or unreadable."""
    files = gpt2_files(root)
    try:
        return _digest(files, tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None


@lru_cache
def _digest(files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> str:
    content = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256(" ".join(content).encode()).hexdigest()[:12]
