"""Test the readers of GLUE and SuperGLUE on their official layouts made small."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dropbench.tasks.data.dataset import DATASETS
from dropbench.tasks.data.read import read_any
from tests.input_errors import one_line
from tests.tasks.data.conftest import RealSource, WriteSource

PAIR = "index\tsentence1\tsentence2\tlabel"
ENTAILMENT = ("entailment", "not_entailment")
OFFICIAL: dict[str, tuple[str | None, Any, tuple[Any, ...]]] = {
    "cola": (None, "gj04\t{label}\t\tThe sailors  rode {n} .", ("1", "0")),
    "sst-2": ("sentence\tlabel", "a gorgeous film {n} \t{label}", ("0", "1")),
    "rte": (PAIR, '{n}\tA man {n}.\tA "man.\t{label}', ENTAILMENT),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{label}\t7\t8\tHe said {n}.\tHe {n}.", ("0", "1")),
    "qnli": ("index\tquestion\tsentence\tlabel", "{n}\tWho {n}?\tHe.\t{label}", ENTAILMENT),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "{n}\t1\t2\tWho {n}?\tWhat?\t{label}", ("0", "1")),
    "mnli": (
        "index\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
        "{n}\t3c\tfiction\tHe {n}.\tShe.\tneutral\t{label}",
        ("entailment", "neutral", "contradiction"),
    ),
    "wnli": (PAIR, "{n}\tIt {n}.\tThe pin.\t{label}", ("0", "1")),
    "sts-b": (
        "index\tgenre\tsentence1\tsentence2\tscore",
        "{n}\tnews\tA plane {n}.\tA kite.\t{label}",
        ("5.000", "3.8"),
    ),
    "boolq": (None, {"question": "is it {n}", "passage": "Yes.", "idx": 1}, (False, True)),
    "copa": (
        None,
        {"premise": "He {n}.", "choice1": "It {n}.", "choice2": "They.", "question": "cause"},
        (0, 1),
    ),
    "swag": (
        ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,label",
        '{n},v,"A man, {n}.",He,"runs, ""fast"".",sits {n}.,lies.,eats.,{label}',
        ("0", "1", "2", "3"),
    ),
    "cb": (None, {"premise": "He {n}.", "hypothesis": "He."}, ("entailment", "contradiction", "neutral")),
}
"""Set → first line, a row, and the labels by class."""


def rows(name: str, count: int, header: bool = True) -> bytes:
    """Return a file of a set, whose labels alternate."""
    first, row, labels = OFFICIAL[name]
    lines = [first] if header and first is not None else []
    for number in range(count):
        label = labels[number % len(labels)]
        if isinstance(row, dict):
            lines.append(json.dumps({**{key: str(text).format(n=number) for key, text in row.items()}, "label": label}))
        else:
            lines.append(row.format(n=number, label=label))
    return "\n".join(map(str, lines)).encode() + b"\n"


def files(name: str, **counts: int) -> dict[str, bytes]:
    """Return the files of a set by name, in its first layout; `counts` are the numbers of rows of its splits."""
    train, test = DATASETS.get(name).layouts[0].files
    optional = {"val.tsv": counts["dev"]} if "dev" in counts else {}
    return {file: rows(name, count) for file, count in {train: 60, test: counts.get("test", 6), **optional}.items()}


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_official_layout_is_read(name: str, source: WriteSource) -> None:
    data: Any = read_any(source(name, files(name)))
    dev = 4 if name == "swag" else 6  # one of 15 rows of a class, or two of 20, or three of 30
    assert data.rows() == {"train": 60 - dev, "dev": dev, "test": 6}
    assert data.notes[:2] == (
        "test is the official dev set, as labels of the official test set are not public",
        f"dev is 10 % of the official train ({'' if name == 'sts-b' else 'stratified, '}seed 2019)",
    )
    if name == "sts-b":
        assert data.test.scores.tolist() == [5.0, 3.8] * 3
        assert data.test.texts[1] == ("A plane 1.", "A kite.")
        return
    classes = len(OFFICIAL[name][2])
    numbers = [1, 0] if name == "cola" else list(range(classes))
    assert data.test.labels.tolist() == (numbers * 6)[:6]
    assert len(data.classes) == classes == DATASETS.get(name).classes
    texts = {"cola": "The sailors rode 1 .", "sst-2": "a gorgeous film 1"}
    assert name not in texts or data.test.texts[1] == texts[name]
    if name == "swag":
        assert (data.test.texts[1], data.test.choices[1][:2]) == ("A man, 1.", ('He runs, "fast".', "He sits 1."))
    if name == "copa":
        expected = ("He 1. What was the cause of this?", ("It 1.", "They."))
        assert (data.test.texts[1], data.test.choices[1]) == expected
    assert name != "rte" or (data.test.premises[1], data.test.hypotheses[1]) == ("A man 1.", 'A "man.')


@pytest.mark.parametrize("header", [True, False])
def test_val_tsv_is_dev_with_or_without_names_of_columns(source: WriteSource, header: bool) -> None:
    content = {**files("rte"), "val.tsv": rows("rte", 8, header)}
    data = read_any(source("rte", content))
    assert data.rows() == {"train": 60, "dev": 8, "test": 6}
    assert not any("10 %" in note for note in data.notes)


def test_the_files_of_the_sts_benchmark_are_read(source: WriteSource) -> None:
    row = 'main-captions\tMSRvid\t2012test\t{:04d}\t{}\tA plane {}.\tAn "air plane.\n'
    tables = {
        f"sts-{split}.csv": "".join(row.format(n, n % 6, n) for n in range(20)).encode() for split in ("train", "dev")
    }
    data: Any = read_any(source("sts-b", tables))
    assert data.rows() == {"train": 18, "dev": 2, "test": 20}
    assert data.test.texts[3] == ("A plane 3.", 'An "air plane.')
    assert data.test.scores[3] == 3.0


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("rte", b"\tentailment", b"\tmaybe", r"dev.tsv:2: label 'maybe': expected entailment, not"),
        ("cola", b"gj04\t1", b"gj04\t2", r"dev.tsv:1: label '2': expected unacceptable, acceptable"),
        ("sts-b", b"5.000", b"high", r"dev.tsv:2: score 'high': expected a finite number"),
        ("mrpc", b"Quality", b"quality", r"dev.tsv:1: Quality 'quality': expected not_equivalent"),
        ("sst-2", b"\t1\n", b"\t2\n", r"dev.tsv:3: label '2': expected negative, positive"),
        ("qnli", b"\tentailment", b"\tyes", r"dev.tsv:2: label 'yes': expected entailment, not_entailment"),
        ("qqp", b"\t1\n", b"\t2\n", r"dev.tsv:3: is_duplicate '2': expected not_duplicate, duplicate"),
        ("mnli", b"\tcontradiction", b"\tcontra", r"dev_matched.tsv:4: gold_label 'contra': expected entailment"),
        ("wnli", b"\t1\n", b"\ttrue\n", r"dev.tsv:3: label 'true': expected not_entailment, entailment"),
        ("cb", b'"neutral"', b'"neither"', r"val.jsonl:3: label 'neither': expected entailment, contra"),
        ("copa", b'"cause"', b'"why"', r"val.jsonl: question 'why': expected cause or effect"),
        ("swag", b",0\n", b",4\n", r"val.csv:2: label '4': expected ending0, ending1, ending2, ending3"),
        ("boolq", b'"passage"', b'"text"', r"val.jsonl:1: no column 'passage' among question, text, idx, label"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(source: WriteSource, name: str, old: bytes, new: bytes, message: str) -> None:
    content = files(name)
    test = DATASETS.get(name).layouts[0].files[1]
    assert old in content[test]
    with one_line(message):
        read_any(source(name, {**content, test: content[test].replace(old, new)}))


def test_rows_that_lack_a_text_or_columns_are_left_out_with_a_note(source: WriteSource) -> None:
    content = files("qqp")
    content["train.tsv"] += b"77\t1\t2\tWho?\n78\t1\t2\t\tWhat?\t1\n"
    assert "2 rows of train.tsv without a text or a label left out" in read_any(source("qqp", content)).notes


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("cola", (7250, 1301, 1043)),
        ("rte", (2127, 363, 277)),
        ("sts-b", (5174, 575, 1500)),
        ("sst-5", (8544, 1101, 2210)),
    ],
)
def test_published_files(real: RealSource, name: str, counts: tuple[int, int, int]) -> None:
    assert tuple(read_any(real(name)).rows().values()) == counts
