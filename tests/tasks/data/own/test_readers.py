"""Data of a user: files by name, cards, splits, classes and errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read_any
from dropbench.tasks.data.check import check
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteImage, WriteSource

Files = Mapping[str, bytes]
REVIEWS = "text,label,author\n" + "".join(
    f"review {number},{'bad' if number % 2 else 'good'},a{number // 4}\n" for number in range(40)
)
CSV = {"reviews.csv": REVIEWS.encode()}
ROWS_OF_TWO = b"text,label,g\n" + b"".join(b"%d,%d,%d\n" % (n, n % 2, n % 2) for n in range(20))
PAIRS = "".join(json.dumps({"q": f"a {n}", "p": "b", "y": n % 3}) + "\n" for n in range(60)).encode()
TAGGED = "".join(f"Mr O d{n // 2}\nNo{n} B-PER d{n // 2}\n\n" for n in range(40)).encode()


def test_one_csv_file_is_carved_into_stratified_splits(source: WriteSource) -> None:
    checked = check(source("csv", CSV))
    assert checked.rows == {"train": 32, "dev": 4, "test": 4}
    assert checked.class_rows["dev"] == {"bad": 2, "good": 2}
    assert checked.notes == ("80 % train, 10 % dev, 10 % test of your files (stratified, seed 2019)",)
    assert checked.source.dataset.kind == "text-classification"
    assert checked.differences() == []


def test_splits_by_name_plain_or_gzipped(source: WriteSource) -> None:
    files = {"Train.csv": CSV["reviews.csv"], "valid.CSV.gz": gzip.compress(b"label,text\nbad, a  b\n")}
    data: Any = read_any(source("csv", files))
    assert data.rows() == {"train": 36, "dev": 1, "test": 4}
    assert data.dev.texts == ("a b",)
    assert data.notes == ("test is 10 % of your files (stratified, seed 2019)",)


def test_a_card_names_columns_classes_separator_and_percent(source: WriteSource) -> None:
    card = b"text: [q, p]\nlabel: 'y'\nclasses: [3, 1, 2]\nseparator: ;\npercent: {dev: 25, test: 5}\n"
    rows = "".join(f'{n},5;"b;\n{n}";{n % 3 + 1}\n' for n in range(60))
    data: Any = read_any(source("csv", {"a.csv": f"q;p;y\n{rows}".encode(), "card.yaml": card}))
    assert (data.kind, data.classes) == ("textual-entailment", ("3", "1", "2"))
    assert data.rows() == {"train": 42, "dev": 15, "test": 3}
    assert {text.partition("b; ")[2] for text in data.test.hypotheses} == {
        text.partition(",")[0] for text in data.test.premises
    }
    assert all(int(premise.partition(",")[0]) % 3 == (2, 0, 1)[label] for premise, label in zip(
        data.train.premises, data.train.labels, strict=True
    ))  # fmt: skip


def test_pairs_of_json_lines_with_numbers_as_classes(source: WriteSource) -> None:
    data: Any = read_any(source("jsonl", {"all.jsonl": PAIRS, "card.yaml": b"{text: [q, p], label: 'y'}"}))
    assert (data.kind, data.classes, data.train.labels.dtype) == ("textual-entailment", ("0", "1", "2"), np.int64)


def test_groups_stay_together(source: WriteSource) -> None:
    data: Any = read_any(source("csv", {**CSV, "card.yaml": b"group: author"}))
    authors = {split: {int(text.split()[1]) // 4 for text in rows.texts} for split, rows in data.splits().items()}
    assert sum(map(len, authors.values())) == len(set.union(*authors.values())) == 10
    assert "whole groups" in data.notes[0]
    sentences: Any = read_any(source("conll", {"a.conll": TAGGED, "card.yaml": b"{columns: [word, tag, d], group: d}"}))
    documents = {split: {row[0] for row in rows.columns["d"]} for split, rows in sentences.splits().items()}
    assert sum(map(len, documents.values())) == len(set.union(*documents.values())) == 20


def test_duplicates_across_splits_are_counted(source: WriteSource) -> None:
    rows = b"text,label\na,0\nb,1\n"
    notes = read_any(source("csv", {"train.csv": rows, "dev.csv": rows, "test.csv": rows + b"c,0\n"})).notes
    assert notes[0] == "splits as in the files"
    assert notes[1:] == (
        "duplicates: 2 rows of dev are also in train", "duplicates: 2 rows of test are also in train or dev",
    )  # fmt: skip


def test_tagged_sentences(source: WriteSource) -> None:
    card = b"columns: [word, tag, d]"
    located = source("conll", {"train.conll": TAGGED, "test.conll": TAGGED, "card.yaml": card})
    assert located.dataset.columns == ("d",)
    data: Any = read_any(located)
    assert data.rows() == {"train": 36, "dev": 4, "test": 40}
    assert data.classes == ("B-PER", "O")
    assert data.notes[1] == "duplicates: 40 rows of test are also in train or dev"
    tokens: Any = read_any(source("conll", {"card.yaml": card + b"\nscored: tokens", "test.conll": b"a X-Y d\n"}))
    assert (tokens.scored, "X-Y" in tokens.classes) == ("tokens", True)


def test_image_folders(tmp_path: Path, write_image: WriteImage) -> None:
    for number in range(20):
        write_image(tmp_path / "cat" / f"p{number // 2}_{number}.png", number)
        write_image(tmp_path / "dog" / f"q{number // 2}_{number}.png", 100 + number // 2)
    (tmp_path / "card.yaml").write_text("{classes: [dog, cat], group: _}")
    data: Any = read_any(locate("image-folder", folders={"image-folder": tmp_path}))
    assert (data.classes, data.rows()) == (("dog", "cat"), {"train": 32, "dev": 4, "test": 4})
    assert "whole groups" in data.notes[0]
    assert len(data.notes) == 1
    (tmp_path / "card.yaml").unlink()
    assert any(
        "also in train" in note for note in read_any(locate("image-folder", folders={"image-folder": tmp_path})).notes
    )
    for split, folder in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("test", "cow")):
        write_image(tmp_path / "split" / split / folder / "1.png", 1)
    with pytest.raises(InputError, match="test: class 'cow' is in the folder or in train, but not in both"):
        read_any(locate("image-folder", folders={"image-folder": tmp_path / "split"}))
    for number in range(12):
        write_image(tmp_path / "single" / "cat" / f"{number}.png", number)
    with pytest.raises(InputError, match="single: 1 class: expected two or more"):
        read_any(locate("image-folder", folders={"image-folder": tmp_path / "single"}))
    write_image(tmp_path / "single" / "dog" / "1.png", 1)
    (tmp_path / "single" / "card.yaml").write_text("group: '#'\n")
    with pytest.raises(InputError, match="group '#' is in no file's name"):
        read_any(locate("image-folder", folders={"image-folder": tmp_path / "single"}))


def test_boxes(tmp_path: Path, write_image: WriteImage) -> None:
    for number in range(20):
        write_image(tmp_path / "images" / f"{number}.png", number // 2)
    images = [{"id": n, "file_name": f"{n}.png", "width": 8, "height": 6} for n in range(20)]
    boxes = [{"image_id": n, "category_id": 7, "bbox": [0, 0, 4, 4]} for n in range(20)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 7, "name": "x"}]}
    (tmp_path / "result.json").write_text(json.dumps(content))
    located = locate("coco-json", folders={"coco-json": tmp_path})
    data: Any = read_any(located)
    assert (data.classes, data.category_ids, data.rows()) == (("x",), (7,), {"train": 16, "dev": 2, "test": 2})
    assert any(note.startswith("duplicates") for note in data.notes)
    (tmp_path / "result.json").write_text(json.dumps({**content, "annotations": []}))
    with pytest.raises(InputError, match=r"result\.json: no box in the images of train: expected one at least"):
        check(located)
    before = located.fingerprint()
    write_image(tmp_path / "images" / "3.png", 200)
    assert locate("coco-json", folders={"coco-json": tmp_path}).fingerprint() != before


def test_parallel_text(source: WriteSource) -> None:
    english = "".join(f"one {n}\n" for n in range(30)).encode()
    german = english.replace(b"one", b"eins")
    data: Any = read_any(source("parallel", {"news.en": english, "news.de.gz": gzip.compress(german)}))
    assert (data.source, data.target, data.rows()) == ("de", "en", {"train": 24, "dev": 3, "test": 3})
    pairs = [pair for files in data.files.values() for pair in files.pairs()]
    assert sorted(pairs) == sorted((f"eins {n}", f"one {n}") for n in range(30))
    files = {"dev.de": german[:7], "dev.en": english[:6], "card.yaml": b"languages: [en, de]", "notes.md": b"x"}
    data = read_any(source("parallel", files))
    assert (data.source, data.target, data.rows()) == ("en", "de", {"train": 27, "dev": 1, "test": 3})
    assert "duplicates: 1 row of dev is also in train" in data.notes


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("csv", {"a.csv": b"text,label\na,0\nb,1,2\n"}, r"a\.csv:3: 3 columns: expected 2 of unique names"),
        ("csv", {"a.csv": b"text;label\na;0\n"}, r"a\.csv:2: no column 'text' among text;label"),
        ("csv", {**CSV, "card.yml": b"text: text\n"}, r"card\.yml: rename the file to card\.yaml"),
        ("csv", {"a.csv": b'text,label\n"a,0\nb,1\n'}, r"a\.csv:2: unexpected end of data"),
        ("csv", {"a.csv": b"text,label\na,0\nb,\n"}, r"a\.csv:3: label '': not among 0, the classes of train"),
        ("csv", {"a.csv": b"text,label\na,0\n"}, r"a\.csv: 1 class: expected two or more"),
        ("csv", {"a.csv": b"text,label\n" + b"a,yes\nb,no\n" * 10 + b"c,ye\n"},
         r"a\.csv:22: label 'ye': the only row of its class: correct it, or list all classes in card\.yaml"),
        ("csv", {"train.csv": b"text,label\na,0\nb,1\n", "test.csv": b"text,label\nb,2\n"}, r"test\.csv:2: label '2'"),
        ("csv", {"train.csv": b"x", "extra.csv": b"y"}, "extra.csv, train.csv: expected 1 for train"),
        ("csv", {"dev.csv": b"x"}, "dev.csv: expected 1 for train"),
        ("csv", {**CSV, "card.yaml": b"text: text\nlable: x\n"}, r"card\.yaml:2 'lable': did you mean label"),
        ("csv", {**CSV, "card.yaml": b"text: q\npercent: {dev: 90}\n"}, r"card\.yaml:2: percent\.dev=90: expected 1"),
        ("csv", {**CSV, "card.yaml": b"- a"}, r"card\.yaml: expected a mapping"),
        ("csv", {"train.csv": CSV["reviews.csv"], "test.csv": b"text,label,author\nc,bad,a0\n",
                 "card.yaml": b"group: author"}, "group 'a0' is in train and test"),
        ("jsonl", {"a.jsonl": b'{"text": "a", "label": 0}\n{"text": null, "label": 0}\n'}, r"a\.jsonl:2: text is null"),
        ("jsonl", {"a.jsonl": b'{"text": "a", "label": true}\n'}, "label is true: expected text or a whole number"),
        ("csv", {**CSV, "card.yaml": b"percent: 20"}, r"card\.yaml:1: percent=20: expected 1 to 49, as in"),
        ("csv", {**CSV, "card.yaml": b"classes: [true, false]"}, "True: expected a list of texts or whole numbers"),
        ("parallel", {"a.de": b"x", "card.yaml": b"languages: de"}, r"languages=de: expected two suffixes, such as \["),
        ("csv", {"a.csv": ROWS_OF_TWO, "card.yaml": b"group: g"}, "2 groups in train: too few for train, dev, test"),
        ("csv", {"train.csv": b"text,label,g\na,0,x\nb,1,x\n", "test.csv": b"text,label,g\nc,1,y\n",
                 "card.yaml": b"group: g"}, "1 group in train: too few for train, dev: use more groups"),
        ("conll", {"a.conll": b"a b O\n"}, r"a\.conll:1: 3 columns: expected 2, word, tag"),
        ("conll", {"a.conll": b"a O\n", "card.yaml": b"columns: [word]"}, "columns word: expected word and tag once"),
        ("parallel", {"a.en": b"x\n", "a.de": b"x\n", "a.fr": b"x\n"}, "a.de, a.en, a.fr: expected 2 for train"),
        ("parallel", {"train.en": b"x\n", "train.de": b"x\n", "test.de": b"x\n", "test.fr": b"x\n"},
         "the languages differ between splits"),
    ],
)  # fmt: skip
def test_errors_are_one_line(source: WriteSource, name: str, files: Files, message: str) -> None:
    with one_line(message):
        check(source(name, files))


def test_a_label_keeps_two_sets_apart(tmp_path: Path) -> None:
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "a.csv").write_text(REVIEWS)
    located = locate("csv:reviews", tmp_path)
    assert (located.name, located.dataset.name, located.folder) == ("csv:reviews", "csv", tmp_path / "reviews")
    for wrong in ("csv:", "csv:../x", "cvs:x", "csv:x-synthetic", "trec-synthetic:x"):
        with pytest.raises(InputError, match="unknown data"):
            locate(wrong, tmp_path)


@pytest.mark.parametrize("card", [b"{text: [q, s], choices: [a, b]}", b"{text: q, choices: [a, b], label: name}"])
def test_choices_are_columns(source: WriteSource, card: bytes) -> None:
    rows = "".join(f'Who {n}?,He,"a, {n}",b {n},{n % 2},{"ab"[n % 2]}\n' for n in range(40))
    data: Any = read_any(source("csv", {"a.csv": f"q,s,a,b,label,name\n{rows}".encode(), "card.yaml": card}))
    assert (data.kind, data.classes, data.rows()) == ("multiple-choice", ("a", "b"), {"train": 32, "dev": 4, "test": 4})
    start = "He " if b"s]" in card else ""
    for text, choices, label in zip(data.test.texts, data.test.choices, data.test.labels, strict=True):
        number = int(text[4:-1])
        assert (choices, label) == ((f"{start}a, {number}", f"{start}b {number}"), number % 2)


def test_choices_have_neither_scores_nor_metrics_of_classes(source: WriteSource) -> None:
    with one_line("metrics: not for choices, whose metric is accuracy: remove it, or `choices`"):
        source("csv", {**CSV, "card.yaml": b"{choices: [text, author], metrics: f1}"})
