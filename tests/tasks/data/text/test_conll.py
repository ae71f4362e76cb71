"""Column files: CoNLL-2003, CoNLL-2000 and WNUT."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.tasks.data import locate, read
from dropbench.tasks.data.check import check
from dropbench.tasks.data.text.conll import read_columns
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

FOUR = ("word", "pos", "chunk", "tag")
THREE = ("word", "pos", "tag")
TWO = ("word", "tag")
# As published: a line that separates documents, IOB1, adjacent spans of the same type.
CONLL_2003 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
call NN I-NP O
. . O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER

Rome NNP I-NP I-LOC
Milan NNP I-NP B-LOC
"""


def parsed(tmp_path: Path, content: str | bytes, names: tuple[str, ...] = THREE) -> tuple[TaggedSplit, str, int]:
    path = tmp_path / "train.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_columns(path, names)


def test_conll2003_as_published(tmp_path: Path) -> None:
    split, scheme, documents = parsed(tmp_path, CONLL_2003, FOUR)
    assert split.words == (
        ("EU", "rejects", "German", "call", "."), ("Peter", "Blackburn"), ("Rome", "Milan"),
    )  # fmt: skip
    assert split.tags == (("B-ORG", "O", "B-MISC", "O", "O"), ("B-PER", "I-PER"), ("B-LOC", "B-LOC"))
    assert split.columns["pos"][0] == ("NNP", "VBZ", "JJ", "NN", ".")
    assert split.columns["chunk"][0] == ("I-NP", "I-VP", "I-NP", "I-NP", "O")
    assert (scheme, documents) == ("IOB1", 1)


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [("BIO", "B-ORG O B-MISC O O B-PER I-PER B-LOC B-LOC"), ("BIOES", "S-ORG O S-MISC O O B-PER E-PER S-LOC S-LOC")],
)
def test_a_copy_in_another_scheme_gives_the_same_rows(tmp_path: Path, scheme: str, tags: str) -> None:
    new = iter(tags.split())
    copied = re.sub(r"\S+$", lambda tag: next(new), CONLL_2003.partition("\n")[2], flags=re.MULTILINE)
    copy, scheme_of_copy, _ = parsed(tmp_path, copied, FOUR)
    published, _, _ = parsed(tmp_path, CONLL_2003, FOUR)
    assert (copy.words, copy.tags, scheme_of_copy) == (published.words, published.tags, scheme)


CHANGES: dict[str, Callable[[str], str | bytes]] = {
    "empty lines at either end": lambda text: f"\n\n{text}\n\n",
    "no line end at the end": str.rstrip,
    "Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "spaces at the ends of lines": lambda text: text.replace("\n", "  \n"),
    "several empty lines": lambda text: text.replace("\n\n", "\n \n\n\t\n"),
    "several spaces": lambda text: text.replace(" ", "   "),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "no empty line after a document line": lambda text: text.replace("-X- O O\n\n", "-X- -X- O\n"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_what_copies_differ_in_gives_the_same_rows(tmp_path: Path, change: str) -> None:
    published, _, documents = parsed(tmp_path, CONLL_2003, FOUR)
    copy, _, documents_of_copy = parsed(tmp_path, CHANGES[change](CONLL_2003), FOUR)
    assert (copy.words, copy.tags, copy.columns) == (published.words, published.tags, published.columns)
    assert documents_of_copy == documents == 1


# Words of WNUT contain all kinds of characters; only tabs, spaces and line feeds separate them.
WORD = st.text(
    st.characters(exclude_characters=" \t\n\r\0\ufeff", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda word: not word.startswith("-DOCSTART-"))


@given(st.lists(st.lists(st.tuples(WORD, st.sampled_from(["O", "B-x"])), min_size=1, max_size=5), min_size=1))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, str]]]
) -> None:
    folder = tmp_path_factory.mktemp("columns")
    for separator in " \t":
        text = "\n".join("".join(f"{word}{separator}{tag}\n" for word, tag in rows) for rows in sentences)
        split, _, _ = parsed(folder, text, TWO)
        assert split.words == tuple(tuple(word for word, _ in rows) for rows in sentences)
        assert split.tags == tuple(tuple(tag for _, tag in rows) for rows in sentences)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the DT B-NP\ncat NN\n", r"train\.txt:2: 2 columns: expected 3, word, pos, tag"),
        ("the DT B-NP\n\ncat NN I-NP O\n", r"train\.txt:3: 4 columns: expected 3"),
        ("the\t\tB-NP\n", r"train\.txt:1: an empty column: expected 3"),
        ("the DT B-NP\n\n\ncat NN L-NP\n", r"train\.txt:4: tag 'L-NP' has no known scheme"),
        ("the DT B-NP\n\ncat NN I-NP\n", r"train\.txt:3: I-NP starts a span \(IOB1\), and so does \S+:1: B-NP \(BIO\)"),
        (b"caf\xc3\xa9 NN O\n\ncaf\xe9 NN O\n", r"train\.txt:3: byte 0xe9 is not valid utf-8: expected utf-8 text"),
        ("\n \n", r"train\.txt: no sentences: expected one at least"),
        ("-DOCSTART- -X- O\n\n", r"train\.txt: no sentences"),
    ],
)
def test_a_line_that_does_not_parse_is_reported_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with one_line(message):
        parsed(tmp_path, content)


def test_conll2003_is_counted_as_the_papers_count(source: WriteSource) -> None:
    files = dict.fromkeys(("eng.train", "eng.testa", "eng.testb"), CONLL_2003.encode())
    located = source("conll2003", files)
    data = read(located, TaggedData)
    assert (data.rows()["dev"], data.tokens()["dev"]) == (3, 9)
    assert data.class_rows()["test"] == {"B-LOC": 2, "B-MISC": 1, "B-ORG": 1, "B-PER": 1, "I-PER": 1, "O": 3}
    assert data.scored == "spans"
    assert data.notes == (
        "splits as published", "tags: IOB1, trained and scored as BIO", "3 lines -DOCSTART- left out",
    )  # fmt: skip
    differences = check(located).differences()
    # Table 4 counts the lines between documents as tokens; the paper of the set does not.
    assert "dev: 10 tokens, those left out among them, DropAttention, Table 4 has 51,578" in differences
    assert "dev: 4 rows, those left out among them, Tjong Kim Sang and De Meulder (2003) has 3,466" in differences


def test_files_of_other_names_in_different_schemes_are_converted_and_noted(source: WriteSource) -> None:
    files = {
        "train.txt": CONLL_2003.encode(),
        "valid.txt": b"Rome NN I-NP B-LOC\n",
        "test.txt": b"Rome NN I-NP S-LOC\n",
    }
    data = read(source("conll2003", files), TaggedData)
    assert data.dev.tags == data.test.tags == (("B-LOC",),)
    note = "tags: train.txt in IOB1, valid.txt in BIO, test.txt in BIOES, trained and scored as BIO"
    assert note in data.notes


def test_conll2000_gets_its_dev_from_train(source: WriteSource) -> None:
    train = "\n".join(f"word{number} NN B-NP\nruns VBZ B-VP\n" for number in range(60))
    located = source("conll2000", {"train.txt": train.encode(), "test.txt": b"it PRP B-NP\n"})
    data = read(located, TaggedData)
    assert data.rows() == {"train": 54, "dev": 6, "test": 1}
    words = {sentence[0] for split in (data.train, data.dev) for sentence in split.words}
    assert words == {f"word{number}" for number in range(60)}
    assert all(row == ("NN", "VBZ") for row in data.dev.columns["pos"])
    assert data.notes[0] == "dev is 10 % of the sentences of the published train (seed 2019)"
    differences = check(located).differences()
    assert "train: 120 tokens, DropAttention, Table 4 has 211,727" in differences
    assert "train: 60 rows, Tjong Kim Sang and Buchholz (2000) has 8,936" in differences


def test_wnut_has_tabs_and_lines_of_tabs(source: WriteSource) -> None:
    content = "@paulwalk\tO\nEmpire\tB-location\nState\tI-location\n\t\n\u200b\tO\nESB\tB-location\n".encode()
    files = dict.fromkeys(locate("wnut17-synthetic").layout.files, content)
    data = read(source("wnut17", files), TaggedData)
    assert data.train.words == (("@paulwalk", "Empire", "State"), ("\u200b", "ESB"))
    assert data.train.tags == (("O", "B-location", "I-location"), ("O", "B-location"))
    assert not data.train.columns
