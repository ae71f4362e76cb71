"""From parallel text to the files that fairseq trains on: pieces, dictionary and token numbers, made once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from harness.errors import InputError
from harness.files import canonical_json
from tasks.data.fairseq_binary import NAMES, UNKNOWN, BinarisedPairs
from tasks.data.parallel import SPLITS, ParallelText, TranslationData
from tasks.data.pieces import cut, learn_pieces
from tasks.data.synthetic import cache_folder

# Part of the folder's name. Raise it when what is written changes.
VERSION = 1
BLOCK = 10_000
LARGE = 2**26
"""Files of so many bytes are binarised by several processes."""


@dataclass(frozen=True)
class Prepared:
    """A folder that fairseq's translation task reads.

    Attributes:
        pairs: the folder, and its languages.
        post_process: what makes words of pieces, in fairseq's terms: "sentencepiece" or "@@ ".
        tokenised: whether these words are Moses tokens; else they are raw text.
        references: the translations of test as text, of raw text or tokens; None: only the dictionary knows them.
        notes: what was left out on the way, and what the dictionary does not know.
    """

    pairs: BinarisedPairs
    post_process: str
    tokenised: bool
    references: tuple[str, ...] | None
    notes: tuple[str, ...]


def prepare(data: TranslationData, fingerprint: str, *, pieces: int, symbols: int) -> Prepared:
    """Make what fairseq needs, or take what was made before of the same files in the same way.

    Args:
        data: text, or a binarised folder, which is taken as it is.
        fingerprint: of the files of `data`.
        pieces: size of the joint BPE of raw text.
        symbols: most symbols of the joint dictionary of text that comes in pieces, fairseq's own among them.

    Raises:
        InputError: a file is damaged, or the cache folder cannot be written.
    """
    if isinstance(data, BinarisedPairs):
        data.verify(lambda: None)
        return Prepared(data, "@@ ", True, None, _unknown(data))
    assert isinstance(data, ParallelText)
    settings = {"pieces": pieces} if data.form == "raw" else {"symbols": symbols}
    digest = hashlib.sha256(canonical_json({"version": VERSION, "form": data.form, **settings}).encode()).hexdigest()
    folder = cache_folder() / f"{data.name}-{fingerprint}-{digest[:8]}"
    if os.pathsep in str(folder):
        raise InputError(
            f"{folder}: fairseq takes '{os.pathsep}' for the end of a path (XDG_CACHE_HOME sets another place)"
        )
    try:
        with _alone(folder):
            if not folder.is_dir():
                _write(data, folder, pieces=pieces, symbols=symbols)
        kept = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
        references = (folder / "test.reference").read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}: cannot keep the binarised {data.name} (XDG_CACHE_HOME sets another place)"
        ) from None
    pairs = BinarisedPairs(data.name, data.source, data.target, folder)
    raw = data.form == "raw"
    return Prepared(pairs, "sentencepiece" if raw else "@@ ", not raw, tuple(references), tuple(kept["notes"]))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Others that want the same folder wait here; what one of them left half done is swept."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for half in folder.parent.glob(f".{folder.name}.*.half"):
            shutil.rmtree(half, ignore_errors=True)
        yield


def _write(data: ParallelText, folder: Path, *, pieces: int, symbols: int) -> None:
    """Everything into a folder beside, which then takes its name."""
    half = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".half"))
    try:
        text = half / "text"
        text.mkdir()
        model = None
        if data.form == "raw":
            pairs = data.files["train"].pairs()
            model = learn_pieces((side for pair in pairs if all(pair) for side in pair), pieces)
            model.save(str(half / "pieces.json"))
        for split in SPLITS:
            _write_split(data, text, split, model)
        _preprocess(data, text, half, symbols=0 if model else symbols)
        (text / "test.reference").rename(half / "test.reference")
        shutil.rmtree(text)
        notes = (*data.notes, *_unknown(BinarisedPairs(data.name, data.source, data.target, half)))
        (half / "prepared.json").write_text(canonical_json({"notes": notes}), encoding="utf-8")
        half.chmod(0o755)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _write_split(data: ParallelText, text: Path, split: str, model: Tokenizer | None) -> None:
    """A split's pairs with text on both sides, in pieces, a file a language; and the words of test's translations."""
    pairs = (pair for pair in data.files[split].pairs() if all(pair))
    names = (f"{NAMES[split]}.{data.source}", f"{NAMES[split]}.{data.target}", f"{split}.reference")
    with ExitStack() as stack:
        files = [stack.enter_context((text / name).open("w", encoding="utf-8")) for name in names]
        while block := list(islice(pairs, BLOCK)):
            source, target = ([pair[side] for pair in block] for side in (0, 1))
            words = [] if split != "test" else target if model else [joined(line) for line in target]
            if model is not None:
                source, target = cut(model, source), cut(model, target)
            for file, lines in zip(files, (source, target, words), strict=True):
                file.writelines(f"{line}\n" for line in lines)


def joined(line: str) -> str:
    """Pieces with "@@" behind all but the last of a word, as words; the same as fairseq does it."""
    return f"{line} ".replace("@@ ", "").rstrip()


def _preprocess(data: ParallelText, text: Path, destination: Path, symbols: int) -> None:
    """fairseq-preprocess with a joined dictionary of at most so many symbols; 0: of all."""
    with _quiet():
        from fairseq import options
        from fairseq_cli import preprocess

        large = any(file.stat().st_size > LARGE for file in text.iterdir())
        arguments = [
            *("--source-lang", data.source, "--target-lang", data.target, "--joined-dictionary"),
            *(f"--{NAMES[split]}pref={text / NAMES[split]}" for split in SPLITS),
            *("--destdir", str(destination), "--workers", str(min(8, os.cpu_count() or 1) if large else 1)),
            *(("--nwordssrc", str(symbols), "--nwordstgt", str(symbols)) if symbols else ()),
        ]
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
        for handler in list(preprocess.logger.handlers):
            preprocess.logger.removeHandler(handler)
            handler.close()
        (destination / "preprocess.log").unlink()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the root logger as it is: fairseq's programs want to print on standard output."""
    keep_out = logging.NullHandler()
    logging.root.addHandler(keep_out)
    try:
        yield
    finally:
        logging.root.removeHandler(keep_out)


def _unknown(pairs: BinarisedPairs) -> tuple[str, ...]:
    """What the dictionaries do not know, by split and language."""
    notes = []
    for split in SPLITS:
        for language in (pairs.source, pairs.target):
            tokens = pairs.sentences(split, language).tokens
            count = sum(int((tokens[at : at + LARGE] == UNKNOWN).sum()) for at in range(0, len(tokens), LARGE))
            if count:
                share = 100 * count / len(tokens)
                notes.append(f"{count:,} tokens ({share:.2g} %) of {split}.{language} are not in the dictionary")
    return tuple(notes)
