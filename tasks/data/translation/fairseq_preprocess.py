"""Preprocess parallel text for fairseq: subword pieces, dictionary and token ids, computed once and cached."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path

from fairseq.data.data_utils import post_process
from tokenizers import Tokenizer

from dropbench.adapters.compat.fairseq import silence_root_logger
from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.splits import SPLITS
from dropbench.tasks.data.synthetic_cache import cache_folder, ensure_cached
from dropbench.tasks.data.translation.fairseq_binary import FAIRSEQ_SPLITS, UNK_INDEX, BinarizedPairs
from dropbench.tasks.data.translation.parallel import ParallelText, TranslationData
from dropbench.tasks.data.translation.sentencepiece_bpe import encode, train_bpe

# Part of the folder's name. Raise it when the written files change.
VERSION = 1
BLOCK = 10_000
LARGE_FILE = 2**26
"""Number of bytes above which several processes binarize a file; also the block size of scans."""


@dataclass(frozen=True)
class PreparedData:
    """A folder that fairseq's translation task reads.

    Attributes:
        pairs: the folder and its languages.
        tokenized: True if the words are Moses tokens, False if they are raw text.
        references: translations of test as raw text or tokens; None if the dictionary is their only source.
        notes: notes on pairs left out and on unknown tokens.
    """

    pairs: BinarizedPairs
    tokenized: bool
    references: tuple[str, ...] | None
    notes: tuple[str, ...]


def prepare(data: TranslationData, fingerprint: str, *, bpe_size: int, max_symbols: int) -> PreparedData:
    """Preprocess a data set for fairseq, or reuse the cached result for the same files and settings.

    Args:
        data: text, or a binarized folder, which is used as it is.
        fingerprint: fingerprint of the files of `data`.
        bpe_size: vocabulary size of the joint BPE of raw text.
        max_symbols: maximum size of the joint dictionary of text in pieces, with fairseq's special symbols.

    Raises:
        InputError: a file is damaged, or the cache folder cannot be written.
    """
    if isinstance(data, BinarizedPairs):
        data.verify(lambda: None)
        return PreparedData(data, True, None, _unknown_token_notes(data))
    assert isinstance(data, ParallelText)
    settings = {"pieces": bpe_size} if data.form == "raw" else {"symbols": max_symbols}
    libraries = {name: version(name) for name in ("fairseq", "tokenizers")}
    key_fields = {"version": VERSION, "form": data.form, **settings, **libraries}
    digest = hashlib.sha256(canonical_json(key_fields).encode()).hexdigest()
    folder = cache_folder(data.name) / f"{data.name.replace(os.pathsep, '-')}-{fingerprint}-{digest[:8]}"
    if os.pathsep in str(folder):
        raise InputError(f"{folder}: fairseq splits paths at '{os.pathsep}': set another folder by XDG_CACHE_HOME")
    write = partial(_write, data, bpe_size=bpe_size, max_symbols=max_symbols)
    ensure_cached(folder, write, f"binarized {data.name}")
    metadata = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
    references = (folder / "test.reference").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = BinarizedPairs(data.name, data.source, data.target, folder)
    return PreparedData(pairs, data.form == "bpe", tuple(references), tuple(metadata["notes"]))


def _write(data: ParallelText, folder: Path, *, bpe_size: int, max_symbols: int) -> None:
    text = folder / "text"
    text.mkdir()
    model = None
    if data.form == "raw":
        pairs = data.files["train"].pairs()
        model = train_bpe((side for pair in pairs if all(pair) for side in pair), bpe_size)
        model.save(str(folder / "pieces.json"))
    for split in SPLITS:
        _write_split(data, text, split, model)
    _preprocess(data, text, folder, max_symbols=0 if model else max_symbols)
    (text / "test.reference").rename(folder / "test.reference")
    shutil.rmtree(text)
    notes = (*data.notes, *_unknown_token_notes(BinarizedPairs(data.name, data.source, data.target, folder)))
    (folder / "prepared.json").write_text(canonical_json({"notes": notes}), encoding="utf-8")


def _write_split(data: ParallelText, text: Path, split: Split, model: Tokenizer | None) -> None:
    """Write the pairs of a split with text on both sides, in pieces, one file per language; and test's references."""
    pairs = (pair for pair in data.files[split].pairs() if all(pair))
    names = (f"{FAIRSEQ_SPLITS[split]}.{data.source}", f"{FAIRSEQ_SPLITS[split]}.{data.target}", f"{split}.reference")
    with ExitStack() as stack:
        files = [stack.enter_context((text / name).open("w", encoding="utf-8")) for name in names]
        while block := list(islice(pairs, BLOCK)):
            source, target = ([pair[side] for pair in block] for side in (0, 1))
            references = [] if split != "test" else target if model else [post_process(line, "@@ ") for line in target]
            if model is not None:
                source, target = encode(model, source), encode(model, target)
            for file, lines in zip(files, (source, target, references), strict=True):
                file.writelines(f"{line}\n" for line in lines)


def _preprocess(data: ParallelText, text: Path, destination: Path, max_symbols: int) -> None:
    """Run fairseq-preprocess with a joined dictionary of at most `max_symbols` symbols; 0 means no limit."""
    with silence_root_logger():
        from fairseq import options
        from fairseq_cli import preprocess

        large = any(file.stat().st_size > LARGE_FILE for file in text.iterdir())
        arguments = [
            *("--source-lang", data.source, "--target-lang", data.target, "--joined-dictionary"),
            *(f"--{FAIRSEQ_SPLITS[split]}pref={text / FAIRSEQ_SPLITS[split]}" for split in SPLITS),
            *("--destdir", str(destination), "--workers", str(min(8, os.cpu_count() or 1) if large else 1)),
            *(("--nwordssrc", str(max_symbols), "--nwordstgt", str(max_symbols)) if max_symbols else ()),
        ]
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
        for handler in list(preprocess.logger.handlers):
            preprocess.logger.removeHandler(handler)
            handler.close()
        (destination / "preprocess.log").unlink()


def _unknown_token_notes(pairs: BinarizedPairs) -> tuple[str, ...]:
    """Return a note on unknown tokens for each split and language that has some."""
    notes = []
    for split in SPLITS:
        for language in (pairs.source, pairs.target):
            tokens = pairs.sentences(split, language).tokens
            blocks = (tokens[start : start + LARGE_FILE] for start in range(0, len(tokens), LARGE_FILE))
            count = sum(int((block == UNK_INDEX).sum()) for block in blocks)
            if count:
                share = 100 * count / len(tokens)
                notes.append(f"tokens of {split}.{language} outside of the dictionary: {count:,} ({share:.2g} %)")
    return tuple(notes)
