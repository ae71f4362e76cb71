"""A small tokenizer in GPT-2's file format."""

from __future__ import annotations

import json
from pathlib import Path

from dropbench.tasks.language import bpe

TEXT = "The owl sees the newt. The newt sees the owl; naïve 漢字 and \U0001f989.\n"
TEXTS = [f"{TEXT} {number} owls, {number * 7} newts" for number in range(60)]


def gpt2_folder(root: Path, vocabulary: int = 300) -> Path:
    """Write a tokenizer in GPT-2's file format, in which the end of text has the last id."""
    tokenizer = bpe.train(TEXTS, vocabulary)
    size = tokenizer.get_vocab_size()
    numbers = {word: (number - 1) % size for word, number in tokenizer.get_vocab().items()}
    folder = root / "gpt2"
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps(numbers, sort_keys=True), encoding="utf-8")
    lines = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n", encoding="utf-8")
    return folder
