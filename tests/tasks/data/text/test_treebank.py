"""The Penn Treebank: trees, sections, and `word_TAG` text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.check import check
from dropbench.tasks.data.text.tagged import TaggedData
from dropbench.tasks.data.text.treebank import read_trees
from tests.input_errors import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tasks.data.conftest import WriteSource

# As published: an outer bracket without a label, functions after labels, traces, brackets and slashes as words.
TREES = r"""
( (S
    (NP-SBJ-1
      (NP (NNP Pierre) (NNP Vinken) )
      (, ,)
      (-LRB- -LRB-) (CD 1\/2) (-RRB- -RRB-) )
    (VP (MD will)
      (VP (VB join)
        (NP (-NONE- *T*-1) )))
    (. .) ))

( (NP (-NONE- *) ))
( (FRAG (NN A.M) (: --) ($ $) (# #) (`` ``) ('' '') ))
"""
WORDS = (
    ("Pierre", "Vinken", ",", "-LRB-", r"1\/2", "-RRB-", "will", "join", "."),
    ("A.M", "--", "$", "#", "``", "''"),
)
TAGS = (("NNP", "NNP", ",", "-LRB-", "CD", "-RRB-", "MD", "VB", "."), ("NN", ":", "$", "#", "``", "''"))
SENTENCE = "( (S (NP (DT The) (NN cat{})) (VP (VBD sat))) )\n"


def sample(files: int = 10) -> dict[str, bytes]:
    return {f"combined/wsj_{number:04d}.mrg": SENTENCE.format(number).encode() for number in range(1, files + 1)}


def test_trees_as_published(source: WriteSource) -> None:
    files = {**dict.fromkeys(sample(), TREES.encode()), "combined/README": b"not a tree"}
    data = read(source("ptb", files), TaggedData)
    assert data.test.words == WORDS
    assert data.test.tags == TAGS
    assert data.classes == tuple(sorted({tag for tags in TAGS for tag in tags}))
    assert data.scored == "tokens"
    assert "20 traces (-NONE-) are no words" in data.notes
    assert "10 sentences of traces alone left out" in data.notes


def test_the_sample_is_split_by_file_and_always_alike(source: WriteSource) -> None:
    data = read(source("ptb", sample(20)), TaggedData)
    assert data.rows() == {"train": 16, "dev": 2, "test": 2}
    assert data.notes == ("80 % train, 10 % dev, 10 % test of 20 files of the sample (seed 2019)",)
    # A change here changes every result: raise RULES in tasks/data/fingerprint.py.
    assert [words[1] for words in data.test.words] == ["cat6", "cat10"]


@pytest.mark.parametrize("folder", ["combined", "treebank_3/parsed/mrg/wsj"])
def test_the_full_set_is_split_by_section(source: WriteSource, folder: str) -> None:
    files = {
        f"{folder}/{section:02d}/wsj_{section:02d}{number:02d}.mrg": SENTENCE.format(section).encode()
        for section in range(25)
        for number in (0, 99)
    }
    located = source("ptb", files)
    data = read(located, TaggedData)
    assert [words[1] for words in data.dev.words] == ["cat19", "cat19", "cat20", "cat20", "cat21", "cat21"]
    assert data.rows() == {"train": 38, "dev": 6, "test": 6}
    assert data.notes == ("train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24",)
    differences = check(located).differences()
    assert "train: 114 tokens, DropAttention, Table 4 has 912,344" in differences
    assert "test: 6 rows, Collins (2002) has 5,462" in differences


def test_missing_sections_are_reported(source: WriteSource) -> None:
    files = {f"wsj/wsj_{section:02d}01.mrg": b"( (X x) )" for section in range(25) if section not in (3, 23)}
    with pytest.raises(InputError, match=r"wsj: no files of sections 03, 23: expected all of 00 to 24, or the free"):
        read_trees(source("ptb", files))


@pytest.mark.parametrize("name", ["sample.mrg", "wsj_2500.mrg", "wsj_\u0660\u0660\u0660\u0661.mrg"])
def test_a_file_without_a_section_in_its_name_is_refused(source: WriteSource, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}: no section in the file name: expected wsj_0000\.mrg"):
        read_trees(source("ptb", {**sample(), f"combined/{name}": b"( (X x) )"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("( (S (NN cat) )\n", r"wsj_0002\.mrg: 1 open bracket at the end of the file: is it truncated\?"),
        ("( (NN cat) )\n)\n", r"wsj_0002\.mrg:2: unmatched closing bracket"),
        ("( (S\n (NN ) ))", r"wsj_0002\.mrg:2: unmatched closing bracket, or no word before it"),
        ("( (S\n (NN New York) ))", r"wsj_0002\.mrg:2: 'York' is outside of a leaf: expected trees of"),
        ("cat NN", r"wsj_0002\.mrg:1: 'cat' is outside of a leaf"),
        ("( (S (NN cat\n (VB is)) ))", r"wsj_0002\.mrg:2: bracket after a word"),
        (b"( (NN caf\xe9) )", r"wsj_0002\.mrg:1: byte 0xe9 is not valid utf-8"),
    ],
)
def test_a_tree_that_does_not_parse_is_reported_by_line(
    source: WriteSource, content: str | bytes, message: str
) -> None:
    damaged = content if isinstance(content, bytes) else content.encode()
    with one_line(message):
        read_trees(source("ptb", {**sample(), "combined/wsj_0002.mrg": damaged}))


LEAF = st.tuples(
    st.sampled_from(["NN", "-LRB-", "$", "-NONE-"]),
    st.text(st.characters(exclude_characters="()\0", exclude_categories=["Z", "C"]), min_size=1, max_size=5),
)
TREE = st.recursive(
    LEAF.map(lambda leaf: (f"({leaf[0]} {leaf[1]})", [leaf])),
    lambda subtrees: st.lists(subtrees, min_size=1, max_size=3).map(
        lambda trees: (f"(NP {' '.join(text for text, _ in trees)} )", [leaf for _, rows in trees for leaf in rows])
    ),
    max_leaves=8,
)


@given(st.lists(TREE, min_size=1, max_size=5))
def test_the_leaves_of_any_tree_are_its_words(
    tmp_path_factory: pytest.TempPathFactory, trees: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("trees")
    (folder / "combined").mkdir()
    for name in sample():
        (folder / name).write_text("\n".join([*(f"( {text} )" for text, _ in trees), "((NN cat))"]), encoding="utf-8")
    data = read_trees(locate("ptb", folders={"ptb": folder}))
    without_traces = [[(tag, word) for tag, word in leaves if tag != "-NONE-"] for _, leaves in trees]
    expected = [*filter(None, without_traces), [("NN", "cat")]]
    assert data.dev.words == tuple(tuple(word for _, word in leaves) for leaves in expected)
    assert data.dev.tags == tuple(tuple(tag for tag, _ in leaves) for leaves in expected)


def test_word_tag_text(source: WriteSource) -> None:
    text = "Pierre_NNP Vinken_NNP ,_,  snake_case_NN __: \\/_/_SYM\r\n\r\nHe_PRP\tsat_VBD ._."
    data = read(source("ptb", dict.fromkeys(("train.txt", "dev.txt", "test.txt"), text.encode())), TaggedData)
    assert data.train.words == (("Pierre", "Vinken", ",", "snake_case", "_", r"\/_/"), ("He", "sat", "."))
    assert data.train.tags == (("NNP", "NNP", ",", "NN", ":", "SYM"), ("PRP", "VBD", "."))
    assert data.notes == ("splits as published",)


@pytest.mark.parametrize("item", ["cat", "_NN", "cat_"])
def test_a_word_without_a_tag_is_reported_by_line(source: WriteSource, item: str) -> None:
    files = dict.fromkeys(("train.txt", "dev.txt", "test.txt"), f"The_DT\n\nthe_DT {item} sat_VBD\n".encode())
    with pytest.raises(InputError, match=rf"train\.txt:3: '{item}' has no tag: expected word_TAG"):
        read(source("ptb", files), TaggedData)
