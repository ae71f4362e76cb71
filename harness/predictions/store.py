"""Files of predictions: gzipped lines of JSON, the header first; written atomically, and checked when they are read."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.files import atomic_file, open_regular
from dropbench.harness.predictions.schema import Header, Predictions, check_row
from dropbench.harness.validation import validated

FOLDER = "predictions"
"""The folder in a run directory."""
SUFFIX = ".jsonl.gz"
MAX_BYTES = 2**29
"""Maximum size of a file's content; the predictions for the test set of HICO-DET have a fifth of it."""


def predictions_path(run_directory: Path, split: str) -> Path:
    """Return the path of the predictions of a split."""
    return run_directory / FOLDER / f"{split}{SUFFIX}"


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write a file; raises OSError as `atomic_file` does. Equal predictions give equal bytes."""
    path.parent.mkdir(exist_ok=True)
    with atomic_file(path) as file, gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
        for content in (predictions.header.model_dump(), *predictions.rows):
            line = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            packed.write(line.encode() + b"\n")


def read_predictions(path: Path) -> Predictions:
    """Read a file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, of another version, or larger than `MAX_BYTES`; the message names the line.
    """
    lines = _lines(path)
    where, first = next(lines)
    if not isinstance(first, dict) or first.get("format") != 1:
        raise InputError(f"{where}: expected predictions in format 1: use the version of dropbench that wrote them")
    header = validated(Header, first, where)
    rows = [check_row(row, header, where) for where, row in lines]
    if len(rows) != header.rows:
        raise InputError(f"{path}: {len(rows)} rows: expected {header.rows}, as in line 1")
    return Predictions(header, rows)


def _lines(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the place and the value of each line of JSON; one at least."""
    size = number = 0
    try:
        with open_regular(path) as file, gzip.GzipFile(fileobj=file) as packed:
            while line := packed.readline(MAX_BYTES - size + 1):
                size += len(line)
                number += 1
                if size > MAX_BYTES:
                    raise InputError(f"{path}: more than {MAX_BYTES:,} bytes of predictions")
                yield f"{path}:{number}", json.loads(line, parse_constant=_refuse)
        if not number:
            raise ValueError("empty")
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        place = f"{path}:{number}" if number else f"{path}"
        message = " ".join(str(error).split())[:200]
        raise InputError(f"{place}: damaged predictions ({message}): delete the file") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
