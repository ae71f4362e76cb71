"""The files of GPT-2's tokenizer."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.tasks.data.lines import read_file

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the vocabulary and the merges: those of transformers, and those of OpenAI."""
GPT2_HOME = "https://huggingface.co/openai-community/gpt2"


def gpt2_files(root: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's vocabulary and merges below the data root; raise InputError if they are missing."""
    folder = root / "gpt2"
    for names in GPT2_FILES:
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise InputError(
        f"tokenizer=gpt2: expected {' and '.join(GPT2_FILES[0])} in {folder} (set DROPBENCH_DATA for another folder); "
        f"get them from {GPT2_HOME}, or train a tokenizer with `--set tokenizer=bpe`"
    )


def gpt2_digest(root: Path) -> str:
    """Return a digest of both files for a trial's recipe; raises InputError if they are missing or unreadable."""
    digests = [hashlib.sha256(read_file(file)).hexdigest() for file in gpt2_files(root)]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]
