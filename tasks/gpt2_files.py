"""Where GPT-2's byte-pair encoding lies: two files of the user's."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from harness.errors import InputError

FOLDER = "gpt2"
FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""As transformers and as OpenAI name them."""
HOME = "https://huggingface.co/openai-community/gpt2"


def gpt2_files(root: Path) -> tuple[Path, Path]:
    """The vocabulary and the merges of GPT-2 in the folder ``gpt2`` below the data root.

    Raises:
        InputError: they are not there; the message says where to get them.
    """
    folder = root / FOLDER
    for names in FILES:
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise InputError(
        f"tokenizer=gpt2: expected {' and '.join(FILES[0])} in {folder} (DROPBENCH_DATA sets another place); get"
        f" them from {HOME}, or train a vocabulary with --set tokenizer=bpe"
    )


def gpt2_digest(root: Path) -> str:
    """12 hex digits of both files, which make a trial's identity; raises InputError as `gpt2_files` does."""
    files = gpt2_files(root)
    try:
        return _digest(files, tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None


@lru_cache
def _digest(files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> str:
    content = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256(" ".join(content).encode()).hexdigest()[:12]
