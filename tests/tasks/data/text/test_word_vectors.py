"""Pre-trained word vectors: GloVe, fastText, word2vec text and SENNA."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.tasks.data.text.word_vectors import locate_vectors, read_vectors
from tests.input_errors import one_line

GLOVE = "the 0.5 -1 2e-2\n, 1 2 3\n. . . 7 8 9\nat name@domain.com 4 5 6\ncafé 0 0 1\nThe -1 -1 -1\n"
EXPECTED: dict[str, list[float]] = {
    "the": [0.5, -1, 0.02], ",": [1, 2, 3], ". . .": [7, 8, 9], "at name@domain.com": [4, 5, 6],
    "café": [0, 0, 1], "The": [-1, -1, -1],
}  # fmt: skip


def written(tmp_path: Path, content: str | bytes, name: str = "vectors.txt") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def vectors_of(path: Path, words: list[str] | None = None) -> dict[str, list[float]]:
    _, vectors = read_vectors(path, words or list(EXPECTED))
    return {word: vector.tolist() for word, vector in vectors.items()}


# fastText: a header with the size, and a space at the end of every other line.
FASTTEXT = "6 3\n" + "".join(f"{line} \n" for line in GLOVE.splitlines())
COPIES = {
    "GloVe": GLOVE.encode(),
    "fastText": FASTTEXT.encode(),
    "word2vec": f"6 3\n{GLOVE}".encode(),
    "gzip": gzip.compress(GLOVE.encode(), mtime=0),
    "Windows line ends": GLOVE.replace("\n", "\r\n").encode(),
    "no line end at the end": GLOVE.rstrip().encode(),
    "empty lines": f"{GLOVE}\n\n".encode(),
}


@pytest.mark.parametrize("copy", list(COPIES))
def test_every_format_gives_the_same_vectors(tmp_path: Path, copy: str) -> None:
    path = written(tmp_path, COPIES[copy])
    dim, vectors = read_vectors(path, [*EXPECTED, "absent"])
    assert {word: pytest.approx(vector.tolist()) for word, vector in vectors.items()} == EXPECTED
    assert all(vector.dtype == np.float32 and vector.shape == (dim,) == (3,) for vector in vectors.values())


@pytest.mark.parametrize("names", [("hash/words.lst", "embeddings/embeddings.txt"), ("words.lst", "embeddings.txt")])
def test_senna(tmp_path: Path, names: tuple[str, str]) -> None:
    words, numbers = zip(*((word, " ".join(map(str, vector))) for word, vector in EXPECTED.items()), strict=True)
    for name, lines in zip(names, (words, numbers), strict=True):
        written(tmp_path, "".join(f"{line}\n" for line in lines), f"senna/{name}")
    assert vectors_of(tmp_path / "senna") == {word: pytest.approx(vector) for word, vector in EXPECTED.items()}


def test_lower_case_is_used_for_words_without_a_vector(tmp_path: Path) -> None:
    # The published files have repeated words, of which the first one counts, and an empty one; a number may be a word.
    path = written(tmp_path, f"{GLOVE} 1 1 1\nthe 9 9 9\n1999 4 5 6\n")
    assert vectors_of(path, ["CAFÉ", "The", "THE", "Absent", "1999"]) == {
        "CAFÉ": [0, 0, 1], "The": [-1, -1, -1], "THE": pytest.approx([0.5, -1, 0.02]), "1999": [4, 5, 6],
    }  # fmt: skip


NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)
WORD = st.text(st.characters(exclude_characters=" \n\r\0\ufeff", exclude_categories=["Cs"]), min_size=1, max_size=6)


@given(st.dictionaries(WORD, st.tuples(NUMBER, NUMBER), min_size=1, max_size=6), st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, vectors: dict[str, tuple[float, float]], header: bool
) -> None:
    text = "".join(f"{word} {first!r} {second!r}\n" for word, (first, second) in vectors.items())
    path = written(tmp_path_factory.mktemp("vectors"), f"{len(vectors)} 2\n{text}" if header else text)
    _, found = read_vectors(path, vectors)
    assert {word: tuple(vector.tolist()) for word, vector in found.items()} == vectors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\ncat 1 2\n", r"vectors\.txt:2: expected a word and 3 numbers, not 2"),
        ("2 3\nthe 1 2\n", r"vectors\.txt:2: expected a word and 3 numbers, not 2"),
        ("the\n", r"vectors\.txt:1: expected a word and its numbers, not 0"),
        ("cat 1 2 3\nthe 1 x 3\n", r"vectors\.txt:2: could not convert string to float: 'x': expected numbers after"),
        ("the 1 nan 3\n", r"vectors\.txt:1: a number is not finite"),
        ("the 1 1e39 3\n", r"vectors\.txt:1: a number is not finite"),
        (b"1 300\nthe \0\0\0\0", r"vectors\.txt:2: zero byte: expected utf-8 text"),
        ("6 3\n", r"vectors\.txt: no vectors"),
        (gzip.compress(GLOVE.encode(), mtime=0)[:-9], r"vectors\.txt:\d: damaged gzip file"),
    ],
)
def test_unparsable_lines_are_reported_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with one_line(message):
        read_vectors(written(tmp_path, content), ["the"])


@pytest.mark.parametrize(
    ("words", "numbers", "message"),
    [
        ("the\ncat\n", "1 2 3\n", r"embeddings\.txt:2: no numbers: expected those of 'cat', line 2 of \S+words\.lst"),
        ("the\n", "1 2 3\n4 5 6\n", r"embeddings\.txt:2: more lines than \S+words\.lst"),
        ("the\ncat\n", "1 2 3\n4 5\n", r"embeddings\.txt:2: 2 numbers: expected 3"),
        ("the\n", "1 a 3\n", r"embeddings\.txt:1: could not convert"),
    ],
)
def test_inconsistent_senna_files_are_reported(tmp_path: Path, words: str, numbers: str, message: str) -> None:
    written(tmp_path, words, "words.lst")
    written(tmp_path, numbers, "embeddings.txt")
    with pytest.raises(InputError, match=message):
        read_vectors(tmp_path, ["the", "cat"])


def test_the_file_is_never_in_memory(tmp_path: Path) -> None:
    row = " ".join(["0.12345"] * 100)
    with (tmp_path / "large").open("w") as file:
        file.writelines(f"word{number} {row}\n" for number in range(10_000))
    tracemalloc.start()
    _, found = read_vectors(tmp_path / "large", ["word9999"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 1
    assert peak < 500_000 < (tmp_path / "large").stat().st_size


def test_vectors_are_located_below_the_data_root(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    with pytest.raises(InputError, match=r"vectors 'glove\.txt' not found in \S+/vectors: expected one of its files"):
        locate_vectors("glove.txt", settings)
    path = written(tmp_path, GLOVE, "vectors/glove.txt")
    written(tmp_path, "", "vectors/senna/words.lst")
    written(tmp_path, "", "vectors/.hidden")
    assert locate_vectors("glove.txt", settings) == path
    assert locate_vectors("senna", settings) == tmp_path / "vectors" / "senna"
    with pytest.raises(InputError, match=r"vectors 'glove' not found in \S+: expected one of glove\.txt, senna$"):
        locate_vectors("glove", settings)


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "/etc/passwd", "senna/words.lst", "./glove.txt"])
def test_no_name_escapes_the_folder(tmp_path: Path, name: str) -> None:
    written(tmp_path, "", "secret")
    written(tmp_path, "", "vectors/glove.txt")
    with pytest.raises(InputError, match="expected the name of a file in"):
        locate_vectors(name, Settings(data=tmp_path))
