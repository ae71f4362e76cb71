"""Image folders in ImageNet's and Tiny-ImageNet's layouts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.classification import ImageClassificationData
from tests.tasks.data.conftest import WriteImage


def load(folder: Path, name: str = "imagenet") -> ImageClassificationData:
    return read(locate(name, folders={name: folder}), ImageClassificationData)


@pytest.fixture
def folders(tmp_path: Path, write_image: WriteImage) -> Path:
    """Write ten training and two validation images for each of two classes, which differ in brightness."""
    for label, name in enumerate(("n01", "n02")):
        for number in range(10):
            write_image(tmp_path / "train" / name / f"{name}_{number}.JPEG", 100 * label + number)
        write_image(tmp_path / "val" / name / "a.jpg", 100 * label + 50)
        write_image(tmp_path / "val" / name / "b.png", 100 * label + 51)
    return tmp_path


@pytest.fixture
def tiny(tmp_path: Path, write_image: WriteImage) -> Path:
    """Write the layout of the archive tiny-imagenet-200."""
    lines = []
    for label, name in enumerate(("n01", "n02")):
        for number in range(10):
            write_image(tmp_path / "train" / name / "images" / f"{name}_{number}.JPEG", 100 * label)
        (tmp_path / "train" / name / f"{name}_boxes.txt").write_text("n01_0.JPEG\t0\t0\t63\t63\n")
        write_image(tmp_path / "val" / "images" / f"val_{label}.JPEG", 100 * label)
        lines.append(f"val_{label}.JPEG\t{name}\t0\t32\t44\t62\n")
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(reversed(lines)))
    return tmp_path


def test_the_splits(folders: Path) -> None:
    data = load(folders)
    assert data.rows() == {"train": 18, "dev": 2, "test": 4}
    assert data.classes == ("n01", "n02")
    assert data.class_rows()["dev"] == {"n01": 1, "n02": 1}
    assert "test is val" in data.notes


def test_images_are_rgb_bytes_of_their_class(folders: Path) -> None:
    data = load(folders)
    brightness = []
    for split in data.splits().values():
        for index in range(len(split)):
            image = split.images[index]
            assert image.shape == (6, 8, 3)
            assert image.dtype == np.uint8
            assert image.flags.writeable
            assert (image.mean() >= 98) == (split.labels[index] == 1)
            brightness.append(round(float(image.mean())))
    assert len(brightness) == 24
    assert len(set(brightness)) > 15


def test_other_and_hidden_files_are_skipped(folders: Path) -> None:
    (folders / "train" / "n01" / "Thumbs.db").write_bytes(b"x")
    (folders / "train" / "n01" / "._n01_0.JPEG").write_bytes(b"x")
    (folders / "train" / ".cache").mkdir()
    (folders / "train" / "README.txt").write_text("x")
    (folders / "val" / "n02" / "more").mkdir()
    (folders / "val" / "n02" / "c.webp").write_bytes(b"x")
    data = load(folders)
    assert data.rows() == {"train": 18, "dev": 2, "test": 4}
    assert "skipped, not images (.jpg, .jpeg, .png): 4, the first is train/README.txt" in data.notes


def test_tiny_imagenet(tiny: Path) -> None:
    data = load(tiny, "tiny-imagenet")
    assert data.rows() == {"train": 18, "dev": 2, "test": 2}
    assert data.test.labels.tolist() == [1, 0]
    assert data.test.images[0].mean() > 90


def test_missing_annotations_are_named(tiny: Path) -> None:
    (tiny / "val" / "val_annotations.txt").unlink()
    with pytest.raises(InputError, match=r"val/val_annotations\.txt: no such file: expected it, or a folder per class"):
        load(tiny, "tiny-imagenet")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_1.JPEG\tn09\t0\t0\t1\t1\n", "no class 'n09' in train"),
        ("val_1.JPEG n01\n", "no class '' in train: expected 'file<tab>class'"),
        ("gone.JPEG\tn01\t0\t0\t1\t1\n", r"no image 'gone\.JPEG': expected a line per file of images/"),
        ("../../train/n01/images/n01_0.JPEG\tn01\n", "no image '../../train"),
    ],
)
def test_invalid_annotations_are_reported_by_line(tiny: Path, line: str, message: str) -> None:
    (tiny / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t1\t1\n" + line)
    with pytest.raises(InputError, match=rf"val_annotations\.txt:2: {message}"):
        load(tiny, "tiny-imagenet")


def test_annotations_of_the_wrong_length_are_reported(tiny: Path, write_image: WriteImage) -> None:
    path = tiny / "val" / "val_annotations.txt"
    lines = path.read_text()
    write_image(tiny / "val" / "images" / "val_2.JPEG", 7)
    with pytest.raises(InputError, match=r"val_annotations\.txt: 2 lines for 3 images: no class for 'val_2\.JPEG'"):
        load(tiny, "tiny-imagenet")
    path.write_text(lines + "val_0.JPEG\tn02\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt:3: second line for 'val_0\.JPEG'"):
        load(tiny, "tiny-imagenet")
    path.write_text("")
    with pytest.raises(InputError, match=r"val_annotations\.txt: the file is empty"):
        load(tiny, "tiny-imagenet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train/n03/a.png", r"val: 1 class folders differ from those of .*train: 'n03' is in train only"),
        ("train/n03 val/n03", r"train/n03: no images: expected files ending in \.jpg, \.jpeg, \.png"),
        ("val/n09", "'n09' is in val only"),
        (os.fsdecode(b"train/caf\xe9/a.png"), r"train: class folder 'caf\\udce9': expected text in UTF-8"),
    ],
)
def test_class_folders_that_do_not_fit_are_reported(
    folders: Path, write_image: WriteImage, name: str, message: str
) -> None:
    for path in map(folders.joinpath, name.split()):
        if path.suffix:
            write_image(path, 1)
        else:
            path.mkdir()
    with pytest.raises(InputError, match=message):
        load(folders)


def test_unsorted_validation_images_are_reported(folders: Path, write_image: WriteImage) -> None:
    (folders / "val").rename(folders / "sorted")
    write_image(folders / "val" / "ILSVRC2012_val_00000001.JPEG", 3)
    with pytest.raises(InputError, match=r"val: no class folders: expected val/<class>/<image>"):
        load(folders)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the image is empty"),
        (b"GIF89a not supported", "the image is neither JPEG nor PNG"),
        (b"\xff\xd8\xff", "the image is damaged: its header cannot be read"),
    ],
)
def test_a_file_that_is_not_an_image_is_reported_on_access(folders: Path, content: bytes, message: str) -> None:
    path = folders / "val" / "n01" / "a.jpg"
    path.write_bytes(content)
    data = load(folders)
    with pytest.raises(InputError, match=rf"val/n01/a\.jpg: {message}"):
        data.verify(lambda: None)


@pytest.mark.parametrize(("name", "fraction"), [("a.jpg", 0.3), ("a.jpg", 0.95), ("b.png", 0.6)])
def test_an_image_truncated_is_reported(folders: Path, name: str, fraction: float) -> None:
    path = folders / "val" / "n02" / name
    random = np.random.RandomState(0).randint(0, 256, (40, 40, 3)).astype(np.uint8)
    Image.fromarray(random).save(path, format="PNG" if path.suffix == ".png" else "JPEG")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(InputError, match=rf"val/n02/{name}: the image is (damaged|neither JPEG nor PNG)"):
        load(folders).verify(lambda: None)


def test_a_deleted_image_is_reported(folders: Path) -> None:
    data = load(folders)
    (folders / "val" / "n01" / "a.jpg").unlink()
    with pytest.raises(InputError, match=r"val/n01/a\.jpg: image not found"):
        data.verify(lambda: None)


def test_every_damaged_image_is_counted(folders: Path) -> None:
    for name in ("n01/a.jpg", "n02/a.jpg", "n02/b.png"):
        (folders / "val" / name).write_bytes(b"")
    calls: list[None] = []
    message = r"val/n01/a\.jpg: the image is empty; and 2 more; \S*val/n02/a\.jpg: the image is empty; \S*b\.png: the"
    with pytest.raises(InputError, match=message):
        load(folders).verify(lambda: calls.append(None))
    assert len(calls) == 24
