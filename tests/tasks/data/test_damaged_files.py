"""Damaged files: for any content, a reader returns rows or raises an InputError of one line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from tasks.data import locate, read_any
from tasks.data.text.word_vectors import read_vectors

NAMES = ("conll2003", "wnut17", "ptb", "ud-ewt", "snli")
VECTORS = b"2 3\nthe 0.5 -1 2e-2\n. . . 7 8 9 \n"


def damaged(draw: st.DataObject, content: bytes) -> bytes:
    """Return the content truncated, or with some bytes replaced, inserted or removed."""
    changed = bytearray(content)
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(0, max(0, len(changed) - 1)))
        match draw.draw(st.sampled_from(["cut", "replace", "insert"])):
            case "cut":
                del changed[position:]
            case "replace":
                changed[position : position + draw.draw(st.integers(0, 4))] = draw.draw(st.binary(max_size=4))
            case _:
                changed[position:position] = draw.draw(
                    st.sampled_from([b"\n", b"\n\n", b"\t", b" ", b"(", b")", b"{", b"-", b"_"])
                )
    return bytes(changed)


def check_result(read: Callable[[], object]) -> None:
    message = ""
    try:
        read()
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[Path, bytes]]:
    """Return the files of the synthetic sets by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("twins")))
        twins = {}
        for name in NAMES:
            source = locate(f"{name}-synthetic")
            files = sorted(path for path in source.folder.rglob("*") if path.is_file())
            twins[name] = {path.relative_to(source.folder): path.read_bytes() for path in files}
    return twins


@pytest.mark.parametrize("name", NAMES)
@given(draw=st.data())
def test_sets(
    twins: dict[str, dict[Path, bytes]], tmp_path_factory: pytest.TempPathFactory, name: str, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    victim = draw.draw(st.sampled_from(list(twins[name])))
    for file, content in twins[name].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        start = content[: content.rfind(b"\n", 0, 700) + 1]
        (folder / file).write_bytes(damaged(draw, start) if file == victim else start)
    check_result(lambda: read_any(locate(name, folders={name: folder})))


@given(draw=st.data(), packed=st.booleans())
def test_vectors(tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject, packed: bool) -> None:
    path = tmp_path_factory.mktemp("damaged") / "vectors"
    path.write_bytes(damaged(draw, gzip.compress(VECTORS, mtime=0) if packed else VECTORS))
    check_result(lambda: read_vectors(path, ["the", ". . ."]))
