"""Hostile data files of every kind: each file of a generated set cut, damaged, or something else in its place."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import TEXTS, call, texts
from tests.fuzz.test_read_files import CONTENTS, spoil

SETS = (
    "hico-det", "conll2003", "conll2000", "ptb", "wnut17", "ud-ewt", "snli", "ag-news", "yelp13", "trec", "mr",
    "cifar10", "cifar100", "tiny-imagenet", "imagenet", "humbi", "multi30k", "wmt16-en-de", "wikitext-2", "enwiki",
    "text",
)  # fmt: skip
BYTES = (
    b"\xff", b"\0", b"\t", b"\n", b"\r\n", b"\n\n", b",", b'"', b"{", b"[", b"9" * 5000, b"-1 ", b"nan ", b"\xe2\x80"
)  # fmt: skip
MAX_BYTES = 20_000_000

fuzzed = settings(max_examples=70, suppress_health_check=[HealthCheck.too_slow], print_blob=False)
pytestmark = pytest.mark.slow


@functools.cache
def copied(campaign: Path, name: str) -> Path:
    """Return a copy of a generated set."""
    from dropbench.tasks.data import locate

    return Path(shutil.copytree(locate(f"{name}-synthetic").folder, campaign / "sets" / name))


def damaged(content: bytes, draw: st.DataObject) -> bytes:
    """Return the content of a file with one to three changes."""
    changed = bytearray(content)
    for _ in range(draw.draw(st.integers(1, 3))):
        start = draw.draw(st.integers(0, len(changed)))
        new = draw.draw(st.sampled_from(BYTES) | st.sampled_from(TEXTS).map(str.encode))
        length = draw.draw(st.sampled_from([0, 0, 1, 10, len(changed)]))
        changed[start : start + length] = new
    return bytes(changed)


@fuzzed
@given(
    draw=st.data(),
    name=st.sampled_from(SETS),
    how=st.sampled_from(["damage"] * 8 + ["folder", "pipe", "device", "loop"]),
)
def test_data_files(campaign: Path, draw: st.DataObject, name: str, how: str) -> None:
    folder = copied(campaign, name)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[draw.draw(st.integers(0, min(len(files), 12) - 1))]
    whole = file.read_bytes()
    try:
        if how == "damage":
            file.write_bytes(
                draw.draw(st.sampled_from(CONTENTS) | texts.map(str.encode) | st.just(damaged(whole, draw)))
            )
        else:
            spoil(file, how)
        call("data", "check", f"{name}={folder}", "--quick")
    finally:
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        else:
            file.unlink(missing_ok=True)
        file.write_bytes(whole)
