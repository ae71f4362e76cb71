"""Odd files of a user: what can be read is read, and what cannot is reported for its true reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dropbench.tasks.data import locate, read_any
from dropbench.tasks.data.check import check
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteImage, WriteSource

BOX = {"bbox": [4, 5, 20, 16], "category_id": 1}


def csv(labels: str, text: str = "t") -> bytes:
    """Return a table with one row per label."""
    return "\n".join(["text,label", *(f"{text} {n},{label}" for n, label in enumerate(labels.split()))]).encode()


def write_boxes(folder: Path, images: int = 30, **fields: Any) -> None:
    """Write images of 64 × 48 pixels with one box each, in COCO's format."""
    (folder / "images").mkdir(parents=True)
    headers = [{"id": n, "file_name": f"{n}.jpg", "width": 64, "height": 48} for n in range(images)]
    for number in range(images):
        Image.new("RGB", (64, 48), (number, 0, 0)).save(folder / "images" / f"{number}.jpg")
    boxes = [{"id": n, "image_id": n, **BOX, **fields} for n in range(images)]
    content = {"images": headers, "annotations": boxes, "categories": [{"id": 1, "name": "a"}]}
    (folder / "boxes.json").write_text(json.dumps(content))


def read_folder(name: str, folder: Path) -> Any:
    """Read a folder as the set of that name."""
    return read_any(locate(name, folders={name: folder}))


def test_half_of_an_escaped_character_is_reported_with_its_line(source: WriteSource) -> None:
    lines = [json.dumps({"text": f"word {n}", "label": n % 2, "more": "\ud83d"}) for n in range(20)]
    assert sum(read_any(source("jsonl", {"a.jsonl": "\n".join(lines).encode()})).rows().values()) == 20
    lines[4] = '{"text": "bro\\ud83dken", "label": 0}'
    with one_line(r"a\.jsonl:5: text 'bro\\ud83dken': expected text in UTF-8 without NUL"):
        check(source("jsonl", {"a.jsonl": "\n".join(lines).encode()}))
    lines[4] = '{"text": "whole \\ud83d\\ude00", "label": "\\u0000"}'
    with one_line(r"a\.jsonl:5: label '\\x00': expected text in UTF-8 without NUL"):
        check(source("jsonl", {"a.jsonl": "\n".join(lines).encode()}))


def test_data_of_another_task_name_what_the_card_says(source: WriteSource) -> None:
    with one_line("belong to task 'text-classification', not 'textual-entailment': card.yaml says what the columns"):
        source("csv", {"a.csv": b"text,label\na,0\nb,1\n"}).require_kind("textual-entailment")


def test_a_long_field_of_csv_is_read_as_in_json_lines(source: WriteSource, tmp_path: Path) -> None:
    (long := tmp_path / "long").mkdir()
    texts = ["word " * 30_000, *(f"text {n}" for n in range(40))]
    rows = [f"{text},{n % 2}" for n, text in enumerate(texts)]
    (long / "a.csv").write_text("\n".join(["text,label", *rows]))
    lines = [json.dumps({"text": text, "label": n % 2}) for n, text in enumerate(texts)]
    same = read_any(source("jsonl", {"a.jsonl": "\n".join(lines).encode()}))
    data = read_folder("csv", long)
    assert data.rows() == same.rows()
    assert max(map(len, data.train.texts + data.dev.texts + data.test.texts)) == 149_999


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("-1 0 1", ("-1", "0", "1")),
        ("+1 -1", ("-1", "+1")),
        ("10 9 -10 b a", ("-10", "9", "10", "a", "b")),
        ("1.0 old 2.0", ("1.0", "2.0", "old")),
    ],
)
def test_classes_are_numbers_by_value_then_words(source: WriteSource, labels: str, classes: tuple[str, ...]) -> None:
    assert read_any(source("csv", {"a.csv": csv(f"{labels} " * 20)})).classes == classes


def test_fractions_are_no_classes_unless_the_card_lists_them(source: WriteSource) -> None:
    table = csv("0.1 0.25 1 .5 1e-3 " * 10)
    with one_line(
        r"a\.csv: label is a number such as \.5: for regression, name the column by `score` in card.yaml; or list the"
    ):
        check(source("csv", {"a.csv": table}))
    card = b"classes: ['0.1', '0.25', '1', '.5', '1e-3']"
    assert len(read_any(source("csv", {"a.csv": table, "card.yaml": card})).classes) == 5


def test_a_file_without_rows_is_not_said_to_lack_classes(source: WriteSource) -> None:
    with one_line(r"test\.csv: no rows with text: expected one at least$"):
        check(source("csv", {"train.csv": csv("good bad " * 10), "test.csv": b"text,label\n"}))
    with one_line(r"test\.csv: no rows with text"):
        check(source("csv", {"test.csv": b"text,label\n,good\n"}))
    with one_line(r"train\.csv: no rows with text"):
        check(source("csv", {"train.csv": b"text,label\n", "test.csv": csv("good")}))


TAGGED = "the DT\ncat NN\n\n# #\n3 CD\n\n"


@pytest.mark.parametrize(
    ("columns", "text", "words"),
    [
        ("word, tag", "# newdoc\n# sent_id = 1\n" + TAGGED * 10, 40),
        ("word, a, b, tag", "# sent_id = 1\nthe x y DT\ncat x y NN\n\n" * 20, 40),
        ("word, tag", ("# newdoc 1\n" + TAGGED.replace(" ", "\t").replace("#\t#", "#\tCD")) * 10, 40),
        ("word, tag", ("# NN\n" + TAGGED.replace("# #", "# NN")) * 10, 50),
    ],
)
def test_comments_before_sentences_are_no_words(source: WriteSource, columns: str, text: str, words: int) -> None:
    card = f"columns: [{columns}]\nscored: tokens".encode()
    if "# #" in text:
        text += "a DT\n# #\n"
    located = source("conll", {"a.conll": text.encode(), "card.yaml": card})
    data: Any = read_any(located)
    assert sum(data.tokens().values()) == words + 2 * ("# #" in text)


def test_a_line_that_may_be_a_comment_is_reported(source: WriteSource) -> None:
    card = b"scored: tokens"
    with one_line(r"a\.conll:1: the word # with the tag 'title' looks like a comment: expected comments as `# key = v"):
        check(source("conll", {"a.conll": b"# title\nthe DT\ncat NN\n\n" * 20, "card.yaml": card}))
    data = read_any(source("conll", {"a.conll": b"#\ttitle\nthe\tDT\ncat\tNN\n\n" * 20, "card.yaml": card}))
    assert data.classes == ("DT", "NN", "title")


@pytest.mark.parametrize("area", [0, 0.0])
def test_boxes_with_an_area_of_0_are_used(tmp_path: Path, area: float) -> None:
    write_boxes(tmp_path / "without")
    write_boxes(tmp_path / "zero", area=area)
    expected, data = (read_folder("coco-json", tmp_path / name) for name in ("without", "zero"))
    assert data.notes == expected.notes
    assert data.class_rows() == expected.class_rows() == {"train": {"a": 24}, "dev": {"a": 3}, "test": {"a": 3}}


def test_images_that_are_annotated_without_their_orientation_are_reported(tmp_path: Path) -> None:
    write_boxes(tmp_path)
    located = locate("coco-json", folders={"coco-json": tmp_path})
    check(located)
    orientation = Image.Exif()
    orientation[0x0112] = 6
    for image in (tmp_path / "images").iterdir():
        Image.new("RGB", (48, 64)).save(image, exif=orientation)  # displayed as 64 × 48
    check(located)
    image = tmp_path / "images" / "3.jpg"
    Image.new("RGB", (64, 48)).save(image, exif=orientation)
    with one_line(
        r"3\.jpg: 48 × 64 pixels as displayed: expected 64 × 48, as annotated \(a tool may have ignored the or"
    ):
        check(located)


def test_links_in_a_circle_are_reported(tmp_path: Path, write_image: WriteImage) -> None:
    for number in range(20):
        write_image(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", number)
    located = locate("image-folder", folders={"image-folder": tmp_path / "data"})
    (parent := tmp_path / "data" / "a" / "all").symlink_to(tmp_path / "data")
    with one_line(r"data/a/all: a link to a folder that contains it: remove it from the data set"):
        located.fingerprint()
    parent.unlink()
    for link in (tmp_path / "data" / "a" / "x.png", tmp_path / "data" / "c"):
        link.symlink_to(link)
        with one_line(rf"{link}: Too many levels of symbolic links"):
            check(located)
        link.unlink()
    write_boxes(tmp_path / "boxes")
    image = tmp_path / "boxes" / "images" / "3.jpg"
    image.unlink()
    image.symlink_to(image)
    with one_line(r"3\.jpg: Too many levels of symbolic links"):
        read_folder("coco-json", tmp_path / "boxes")


def test_the_archive_of_tiny_imagenet_is_an_image_folder(tmp_path: Path, write_image: WriteImage) -> None:
    for number in range(40):
        name = f"n0{number % 2}"
        write_image(tmp_path / "train" / name / "images" / f"{name}_{number}.JPEG", number)
        (tmp_path / "train" / name / f"{name}_boxes.txt").write_text("")
    for number in range(4):
        write_image(tmp_path / "val" / "images" / f"val_{number}.JPEG", 100 + number)
        write_image(tmp_path / "test" / "images" / f"test_{number}.JPEG", 200 + number)
    lines = [f"val_{number}.JPEG\tn0{number % 2}\t0\t0\t1\t1\n" for number in range(4)]
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    (tmp_path / "words.txt").write_text("n00\tcat\n")
    data = read_folder("image-folder", tmp_path)
    assert (data.classes, data.rows()) == (("n00", "n01"), {"train": 36, "dev": 4, "test": 4})
    assert data.dev.labels.tolist() == [0, 1, 0, 1]
    assert "the folder test left out, as its images have no classes" in data.notes
    shutil.rmtree(tmp_path / "test")
    assert read_folder("image-folder", tmp_path).rows() == data.rows()
