"""Label maps in the format published for ImageNet, in files that the tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.classification import ImageClassificationData, ImageSplit
from dropbench.tasks.data.images.label_maps import FOLDER, HOME, LabelMaps, locate_maps
from dropbench.tasks.data.locate import Source
from tests.damage import TouchesAFile
from tests.input_errors import one_line
from tests.tasks.data.conftest import WriteImage

MAP = torch.stack([torch.arange(45.0).reshape(5, 3, 3) / 4, torch.arange(5.0)[:, None, None].expand(5, 3, 3)]).half()


@pytest.fixture
def source(tmp_path: Path, write_image: WriteImage) -> Source:
    """Write five classes of ten training images; the scores of the map of image n are those of image 0 plus n."""
    for label in range(5):
        for number in range(10):
            write_image(tmp_path / "train" / f"n0{label}" / f"n0{label}_{number}.JPEG", number)
            folder = tmp_path / FOLDER / f"n0{label}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(MAP + torch.tensor([number, 0])[:, None, None, None].half(), folder / f"n0{label}_{number}.pt")
        write_image(tmp_path / "val" / f"n0{label}" / "a.JPEG", 1)
    return locate("imagenet", folders={"imagenet": tmp_path})


def train(source: Source) -> ImageSplit:
    return read(source, ImageClassificationData).train


def maps(source: Source) -> LabelMaps:
    return LabelMaps.for_images(locate_maps(source), train(source).images, 5)


def test_each_training_image_has_its_own_map(source: Source) -> None:
    images, label_maps = train(source).images, maps(source)
    assert label_maps.shape == (2, 5, 3, 3)
    for index in range(len(images)):
        number = int(images[index].mean().round())  # the brightness of an image is its number
        scores, classes = label_maps[index]
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, torch.arange(45.0).reshape(5, 3, 3) / 4 + number)
        assert classes[:, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_an_absent_folder_is_one_line_that_names_its_source(tmp_path: Path, source: Source) -> None:
    (source.folder / FOLDER).rename(tmp_path / "elsewhere")
    with one_line(f"^token_labels=maps: no folder .*{FOLDER}: .*{HOME}"):
        locate_maps(source)


def test_maps_that_are_missing_are_counted(source: Source) -> None:
    images = train(source).images
    folder = locate_maps(source)
    held_back = 0
    for number in range(10):
        (folder / "n03" / f"n03_{number}.pt").unlink()
        held_back += f"n03/n03_{number}.JPEG".encode() not in images.names.tolist()  # type: ignore[attr-defined]
    assert held_back == 1  # dev needs no map
    with pytest.raises(InputError, match=rf"{FOLDER}: 9 of 45 training images have no map, the first is n03/n03_\d.pt"):
        LabelMaps.for_images(folder, images, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, r"n0._..pt: a label map of shape \(\): expected \(2, 5, rows, columns\)"),
        (torch.zeros(3, 5, 3, 3), r"of shape \(3, 5, 3, 3\): expected \(2, 5, rows, columns\)"),
        (MAP + torch.tensor([0.0, 1.0])[:, None, None, None], r"class 5: expected a class of the training set, 0 to 4"),
        (MAP + torch.tensor([0.0, 0.5])[:, None, None, None], r"class 0.5: expected a class of the training set"),
        (MAP * torch.tensor([float("inf"), 1.0])[:, None, None, None], r"a score is not finite"),
        (b"PK\x03\x04 and so on", r"n0._..pt: not a label map: "),
    ],
)
def test_damaged_maps_name_their_file(source: Source, content: Any, message: str) -> None:
    for path in locate_maps(source).rglob("*.pt"):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
    with one_line(message):
        maps(source)


def test_no_code_of_a_file_is_run(source: Source, tmp_path: Path) -> None:

    for path in locate_maps(source).rglob("*.pt"):
        torch.save(TouchesAFile(tmp_path / "ran"), path)
    with pytest.raises(InputError, match="not a label map"):
        maps(source)
    assert not (tmp_path / "ran").exists()


def test_all_maps_have_one_shape(source: Source) -> None:
    label_maps = maps(source)
    torch.save(MAP[..., :2], label_maps.folder / bytes(label_maps.names[1]).decode())
    with pytest.raises(InputError, match=r"of shape \(2, 5, 3, 2\): expected \(2, 5, 3, 3\)"):
        label_maps[1]
