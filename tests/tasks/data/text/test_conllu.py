"""CoNLL-U: words with universal parts of speech."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.tasks.data import locate, read
from dropbench.tasks.data.text.conllu import read_split
from dropbench.tasks.data.text.tagged import TaggedData
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

# As published: comments, a multiword token, an empty node, an empty line after the last sentence.
PUBLISHED = """# newdoc id = weblog
# text = I don't know, 3 000
1\tI\tI\tPRON\tPRP\tCase=Nom\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tknew\tknow\tVERB\tVBD\t_\t_\t_\t0:root\t_
5\t3\u00a0000\t3000\tNUM\tCD\t_\t4\tobj\t_\t_

# text = Yes
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "dev.conllu"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "copy",
    [PUBLISHED.rstrip(), f"\n\n{PUBLISHED}\n\n", PUBLISHED.replace("\n", " \r\n"), f"\ufeff{PUBLISHED}"],
)
def test_words_as_published(source: WriteSource, copy: str) -> None:
    data = read(source("ud-ewt", dict.fromkeys(locate("ud-ewt-synthetic").layout.files, copy.encode())), TaggedData)
    for split in data.splits().values():
        assert split.words == (("I", "do", "n't", "know", "3\u00a0000"), ("Yes",))
        assert split.tags == (("PRON", "AUX", "PART", "VERB", "NUM"), ("INTJ",))
    assert {"splits as published", "3 empty nodes are no words", "3 multiword tokens are no words"} <= {*data.notes}
    assert (data.classes, data.scored) == (("AUX", "INTJ", "NUM", "PART", "PRON", "VERB"), "tokens")


@pytest.mark.parametrize("end", [PUBLISHED.replace("\n", " \r\n"), PUBLISHED.rstrip(), PUBLISHED.rstrip("\n") + "\n"])
def test_a_file_that_ends_inside_a_sentence_is_noted(source: WriteSource, end: str) -> None:
    files = {f"en_ewt-ud-{split}.conllu": PUBLISHED.encode() for split in ("train", "dev")}
    notes = read(source("ud-ewt", {**files, "en_ewt-ud-test.conllu": end.encode()}), TaggedData).notes
    note = "en_ewt-ud-test.conllu ends inside a sentence: possibly cut short"
    assert (note in notes) == (not end.replace("\r", "").replace(" ", "").endswith("\n\n"))
    assert sum("possibly cut short" in note for note in notes) <= 1


def line(number: str = "1", upos: str = "NOUN", columns: int = 10) -> str:
    return "\t".join([number, "cat", "cat", upos, *"_" * 6][:columns])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{line()}\n{line('2', columns=4)}\n", r"dev\.conllu:2: 4 columns: expected 10 between tabs"),
        ("1 cat cat NOUN _ _ _ _ _ _\n", r"dev\.conllu:1: 1 column: expected 10"),
        (f"{line()}\n{line('3')}\n", r"dev\.conllu:2: word number '3': expected 2"),
        (f"{line('one')}\n", r"dev\.conllu:1: word number 'one': expected 1"),
        (f"# a sentence without labels\n{line(upos='_')}\n", r"dev\.conllu:2: UPOS '_': expected one of ADJ, ADP"),
        ("# nothing but a comment\n", r"dev\.conllu: no sentences"),
        (line().replace("cat", "caf\xe9").encode("latin-1"), r"dev\.conllu:1: byte 0xe9 is not valid utf-8"),
    ],
)
def test_a_line_that_does_not_parse_is_reported_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with one_line(message):
        read_split(written(tmp_path, content))
