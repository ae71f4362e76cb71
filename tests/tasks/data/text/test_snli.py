"""SNLI as lines of JSON and as a table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.tasks.data import DATASETS, locate, read
from dropbench.tasks.data.check import check
from dropbench.tasks.data.text.snli import PairData
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteSource

JSONL, TABLE = (layout.files for layout in DATASETS.get("snli").layouts)
CLASSES = ("contradiction", "entailment", "neutral")
PAIRS = [
    ("neutral", "A person on a horse jumps over a broken down airplane.", "A person is training his horse."),
    ("contradiction", "Two women are embracing .", "The men are\u00a0fighting  outside a deli ."),
    ("-", "A man sleeps.", "A man sleeps at home."),
    ("entailment", 'He said "no".', "n/a"),
]
EXPECTED = [
    (2, "A person on a horse jumps over a broken down airplane.", "A person is training his horse."),
    (0, "Two women are embracing .", "The men are fighting outside a deli ."),
    (1, 'He said "no".', "n/a"),
]
# The columns of the published table, of which the reader uses three.
HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)


def jsonl(pairs: list[tuple[str, str, str]]) -> str:
    rows = [
        {"annotator_labels": [label], "captionID": "1.jpg#4", "gold_label": label, "sentence1": a, "sentence2": b}
        for label, a, b in pairs
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def table(pairs: list[tuple[str, str, str]]) -> str:
    rows = [f"{label}\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{a}\t{b}\t1.jpg#4\t1.jpg#4r1n" for label, a, b in pairs]
    # The published rows end in tabs if an annotator is missing; some copies lack these tabs.
    tabs = ["\tneutral" + "\t" * 4, "", *["\tneutral" * 5] * len(rows)]
    return "".join(f"{row}{end}\n" for row, end in zip([HEADER, *rows], ["", *tabs], strict=False))


def data_of(source: WriteSource, content: str | bytes, names: tuple[str, ...] = JSONL) -> PairData:
    encoded = content if isinstance(content, bytes) else content.encode()
    return read(source("snli", dict.fromkeys(names, encoded)), PairData)


def rows_of(data: PairData) -> list[tuple[int, str, str]]:
    return list(zip(data.test.labels.tolist(), data.test.premises, data.test.hypotheses, strict=True))


@pytest.mark.parametrize("names", [JSONL, TABLE])
def test_pairs_as_published(source: WriteSource, names: tuple[str, ...]) -> None:
    data = data_of(source, jsonl(PAIRS) if names == JSONL else table(PAIRS), names)
    assert data.classes == CLASSES
    assert rows_of(data) == EXPECTED
    assert data.train.labels.dtype == np.int64
    assert data.class_rows()["dev"] == dict.fromkeys(CLASSES, 1)
    assert data.left_out == {"rows": {"train": 1, "dev": 1, "test": 1}}
    assert f"1 pair of {names[0]} without a gold label left out" in data.notes
    assert data.notes[0] == "splits as published"


@pytest.mark.parametrize("names", [JSONL, TABLE])
def test_what_copies_differ_in_gives_the_same_rows(source: WriteSource, names: tuple[str, ...]) -> None:
    text = jsonl(PAIRS) if names == JSONL else table(PAIRS)
    for copy in (text.rstrip("\n"), text.replace("\n", "\r\n"), f"\ufeff{text}", f"{text}\n\n"):
        assert rows_of(data_of(source, copy, names)) == EXPECTED


def test_pairs_without_a_text_are_left_out_and_counted(source: WriteSource) -> None:
    data = data_of(source, jsonl([*PAIRS, ("neutral", "A man.", "  "), ("neutral", "", "A man."), ("-", "", "")]))
    assert rows_of(data) == EXPECTED
    assert data.left_out["rows"]["train"] == 4
    assert f"2 pairs of {JSONL[0]} without a gold label left out" in data.notes
    assert f"2 pairs of {JSONL[0]} without a text left out" in data.notes


CHARACTERS = st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda text: text.split())


@given(st.lists(st.tuples(st.sampled_from(CLASSES), TEXT, TEXT), min_size=1, max_size=3))
def test_what_is_written_is_read_from_both_layouts(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str, str]]
) -> None:
    pairs += [(label, "a", "b") for label in CLASSES]
    expected = [(CLASSES.index(label), " ".join(a.split()), " ".join(b.split())) for label, a, b in pairs]
    for names, text in ((JSONL, jsonl(pairs)), (TABLE, table(pairs))):
        folder = tmp_path_factory.mktemp("pairs")
        for name in names:
            (folder / name).write_bytes(text.encode())
        assert rows_of(read(locate("snli", folders={"snli": folder}), PairData)) == expected


GOOD = jsonl(PAIRS[:1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + '{"gold_label": "neutral", "sentence1"\n', r"train\.jsonl:2: not valid JSON: "),
        ("[" * 100_000, r"train\.jsonl:1: not valid JSON: "),
        (GOOD + '{"gold_label": "neutral", "sentence1": "a"}\n', r"train\.jsonl:2: expected a JSON object with the st"),
        ('{"gold_label": 1, "sentence1": "a", "sentence2": "b"}', r"train\.jsonl:1: expected a JSON object"),
        ('{"gold_label": "-", "sentence1": null, "sentence2": "b"}', r"train\.jsonl:1: expected a JSON object"),
        (
            jsonl([*PAIRS, ("entails", "a", "b")]),
            r"train\.jsonl:5: gold_label 'entails': expected contradiction, entailment, neutral or -",
        ),
        ('{"sentence1": "caf\xe9"}'.encode("latin-1"), r"train\.jsonl:1: byte 0xe9 is not valid utf-8"),
        (jsonl([("-", "a", "b")]), r"data 'snli': no rows for train"),
    ],
)
def test_json_that_does_not_parse_is_reported_by_line(source: WriteSource, content: str | bytes, message: str) -> None:
    with one_line(message):
        data_of(source, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("neutral\ta\tb\n", r"train\.txt:1: no column gold_label: expected tab-separated names"),
        (HEADER.replace("sentence2\t", "hypothesis\t"), r"train\.txt:1: no column sentence2"),
        (HEADER.replace("pairID", "sentence1"), r"train\.txt:1: several columns sentence1"),
        (f"{HEADER}\nneutral\ta\tb\n", r"train\.txt:2: 3 columns: expected 14, as in line 1"),
        (table([("neutral", "a\tb", "c"), *PAIRS[:3]]).replace("\t\t\t\t", "\t" * 6), r"train\.txt:2: 17 columns"),
        (table([*PAIRS, ("yes", "a", "b")]), r"train\.txt:6: gold_label 'yes': expected"),
    ],
)
def test_a_table_that_does_not_parse_is_reported_by_line(source: WriteSource, content: str, message: str) -> None:
    with one_line(message):
        data_of(source, content, TABLE)


def test_the_published_sizes_count_what_is_left_out(source: WriteSource) -> None:
    message = check(source("snli", dict.fromkeys(JSONL, jsonl(PAIRS).encode()))).differences()
    assert "dev: 4 rows, those left out among them, Bowman et al. (2015) has 10,000" in message
    assert "dev: 3 rows, SNLI 1.0, pairs with a gold label has 9,842" in message
