"""Hostile word vectors, and hostile output of fairseq-preprocess, read as by the trials that use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.tasks.data.fingerprint import fingerprint
from dropbench.tasks.text.base import TextTask
from tests.fuzz.hostile import SECONDS, call, limited, texts
from tests.fuzz.test_data_files import damaged
from tests.fuzz.test_read_files import CONTENTS, spoil
from tests.tasks.data.translation.test_fairseq_binary import folder
from tests.tasks.text.test_word_vectors import make as make_with_vectors
from tests.tasks.text.test_word_vectors import write
from tests.tasks.translation.test_translation import make as make_translation

HEADERS = (b"", b"3 5\n", b"0 0\n", b"9 999999\n", b"1 -1\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"PK\x03\x04")

fuzzed = settings(max_examples=100, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
pytestmark = pytest.mark.slow


@contextmanager
def one_line() -> Iterator[None]:
    """Suppress an InputError; let every other exception through, TimeoutError after `SECONDS`."""
    with suppress(InputError), limited(SECONDS):
        yield


@pytest.fixture(scope="module")
def with_vectors(campaign: Path) -> TextTask:
    """A task whose trials read campaign/vectors/some.txt."""
    write(campaign, ["what", "is", "the"])
    return make_with_vectors(campaign)


def vector_lines(draw: st.DataObject) -> bytes:
    """Return a file of vectors, some of whose words or numbers are hostile."""
    word = st.sampled_from(["what", "is", "the", "What", "."]) | texts
    number = st.sampled_from(["1.5", "-2e-3", "1e39", "nan", "1_0", "٣", "0x1", "inf", "1e999"])
    row = st.tuples(word, st.lists(number | texts, max_size=6)).map(lambda row: " ".join([row[0], *row[1]]))
    rows = draw.draw(st.lists(st.sampled_from(["what 1 2 3", "is 3 4 5 ", "the 5 6 7"]) | row, max_size=6))
    return draw.draw(st.sampled_from(HEADERS)) + "\n".join(rows).encode()


@fuzzed
@given(draw=st.data(), how=st.sampled_from(["rows"] * 6 + ["damage"] * 3 + ["content", "pipe", "device", "loop"]))
def test_word_vectors(campaign: Path, with_vectors: TextTask, draw: st.DataObject, how: str) -> None:
    file = campaign / "vectors" / "some.txt"
    write(campaign, ["what", "is", "the"])
    if how in ("pipe", "device", "loop"):
        spoil(file, how)
    elif how == "damage":
        file.write_bytes(damaged(file.read_bytes(), draw))
    else:
        file.write_bytes(vector_lines(draw) if how == "rows" else draw.draw(st.sampled_from(CONTENTS)))
    try:
        with one_line():
            recipe: Any = with_vectors.recipe
            update = {"vectors_fingerprint": fingerprint(file.parent, [file])}
            with_vectors.recipe = recipe.model_copy(update=update)
            with_vectors.build_model()
    finally:
        file.unlink(missing_ok=True)


@fuzzed
@given(draw=st.data(), how=st.sampled_from(["damage"] * 6 + ["content", "device"]))
def test_binarized_text(campaign: Path, draw: st.DataObject, how: str) -> None:
    target = campaign / "binarized"
    target.mkdir(exist_ok=True)
    files = folder()
    name = draw.draw(st.sampled_from(sorted(files)))
    files[name] = damaged(files[name], draw) if how == "damage" else draw.draw(st.sampled_from(CONTENTS))
    for file, content in files.items():
        (target / file).unlink(missing_ok=True)
        (target / file).write_bytes(content)
    if how == "device":
        spoil(target / name, how)
    checked = call("data", "check", f"wmt16-en-de={target}")
    with one_line():
        task = make_translation("wmt16-en-de", folders={"wmt16-en-de": target})
        assert checked.code == 0  # what a trial accepts, the check accepts
        for split in ("train", "dev", "test"):
            task.batch(split, [0])
