"""Test images in tar archives: the same data as in folders, and errors for damaged archives."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches, prefetch
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.classification import ImageClassificationData
from dropbench.tasks.data.images import image_folder, image_shards
from dropbench.tasks.images.image_classification import ImageClassification
from tests.input_errors import one_line
from tests.tasks.making import task_of, trial_of


def load(folder: Path) -> ImageClassificationData:
    return read(locate("imagenet", folders={"imagenet": folder}), ImageClassificationData)


@pytest.fixture
def folders() -> Path:
    """Return generated images in folders."""
    return locate("imagenet-synthetic").folder


@pytest.fixture
def shards(tmp_path: Path, folders: Path) -> Path:
    """Write the same images to archives, in another order."""
    files = {split: sorted((folders / split).glob("*/*"), reverse=True) for split in ("train", "val")}
    parts = {"train-000": files["train"][::2], "train-001": files["train"][1::2], "val-000": files["val"]}
    for name, paths in parts.items():
        with tarfile.open(tmp_path / f"{name}.tar", "w") as archive:
            archive.add(folders / "train", "train", recursive=False)
            for path in paths:
                archive.add(path, str(path.relative_to(path.parents[1])))
    return tmp_path


@pytest.fixture
def web_dataset(tmp_path: Path, folders: Path) -> Path:
    """Write the images as WebDataset's pairs of an image and the number of its class."""
    folder = tmp_path / "wds"
    folder.mkdir()
    classes = sorted(path.name for path in (folders / "train").iterdir())
    for split in ("train", "val"):
        with tarfile.open(folder / f"imagenet1k-{split}-0000.tar", "w") as archive:
            for path in (folders / split).glob("*/*"):
                for suffix, content in (
                    ("cls", str(classes.index(path.parent.name)).encode()),
                    ("jpg", path.read_bytes()),
                    ("json", b"{}"),
                ):
                    member = tarfile.TarInfo(f"{path.stem}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return folder


def test_shards_have_the_order_and_pixels_of_folders(folders: Path, shards: Path, web_dataset: Path) -> None:
    expected = load(folders)
    for folder, classes in ((shards, expected.classes), (web_dataset, tuple(map(str, range(len(expected.classes)))))):
        data = load(folder)
        assert data.classes == classes
        assert data.rows() == expected.rows()
        for split, theirs in expected.splits().items():
            ours = data.splits()[split]
            assert ours.labels.tolist() == theirs.labels.tolist()
            for index in range(len(theirs)):
                assert np.array_equal(ours.images[index], theirs.images[index])
    assert [bytes(name) for name in load(shards).train.images.names] == [  # type: ignore[attr-defined]
        bytes(name)
        for name in expected.train.images.names  # type: ignore[attr-defined]
    ]


def test_workers_make_the_same_batches_from_shards(folders: Path, shards: Path) -> None:
    batches = []
    for folder in (folders, shards):
        settings = Settings(device="cpu", folders={"imagenet": folder})
        overrides = {"image_size": 64, "resized_crop": True, "batch_size": 4, "model.patch_size": 16}
        task = task_of(
            ImageClassification, trial_of("image-classification", "imagenet", "vit-tiny", overrides, settings), settings
        )
        workers = Settings(num_workers=2)
        steps = prefetch(StepBatches(task, seed=3), range(1, 4), workers, torch.device("cpu"))
        batches.append([step[0].batch for step in steps])
    for (ours, labels), (theirs, same) in zip(*batches, strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(labels, same)


class Memory(Dataset[Any]):
    """Make a batch, and return how much memory the process has, in MiB."""

    def __init__(self, batches: StepBatches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> float:
        self.batches[step]
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["folders", "shards"])
def test_the_memory_of_a_worker_is_flat_over_twenty_epochs(name: str, request: pytest.FixtureRequest) -> None:
    settings = Settings(device="cpu", folders={"imagenet": request.getfixturevalue(name)})
    strong = {"randaugment": "rand-m9-mstd0.5-inc1", "erase": 0.25, "mixup": 0.8, "resized_crop": True}
    overrides = {**strong, "image_size": 64, "batch_size": 10, "model.patch_size": 16}
    trial = trial_of("image-classification", "imagenet", "vit-tiny", overrides, settings)
    task = task_of(ImageClassification, trial, settings)
    epoch = task.steps_per_epoch(10)
    batches = Memory(StepBatches(task, seed=3))
    used = list(prefetch(batches, range(20 * epoch), Settings(num_workers=1), torch.device("cpu")))
    first, last = (sum(used[start : start + epoch]) / epoch for start in (4 * epoch, 19 * epoch))
    assert last - first < 2.0


@pytest.mark.parametrize("name", ["folders", "shards"])
def test_images_are_listed_once(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = request.getfixturevalue(name)
    first = load(folder)
    with monkeypatch.context() as patch:
        for module in (image_folder, image_shards):
            patch.setattr(module, "list_images", lambda *arguments: pytest.fail("listed again"))
        again = load(folder)
    assert again.notes == first.notes
    for split, rows in first.splits().items():
        assert again.splits()[split].labels.tolist() == rows.labels.tolist()
        assert np.array_equal(again.splits()[split].images[0], rows.images[0])


def test_a_damaged_list_is_made_again(folders: Path, cache: Path) -> None:
    first = load(folders)
    (file,) = (cache / "dropbench").glob("imagenet-index-*/train-labels.npy")
    file.write_bytes(file.read_bytes()[:90])
    assert load(folders).train.labels.tolist() == first.train.labels.tolist()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (4_000, "train-001.tar: the archive is truncated: copy or download it again"),
        (-10_240, "train-001.tar: the archive is truncated: copy or download it again"),
        (512 + 700, "train-001.tar: the archive is truncated: copy or download it again"),
    ],
)
def test_a_truncated_archive_is_refused(shards: Path, cut: int, message: str) -> None:
    file = shards / "train-001.tar"
    file.write_bytes(file.read_bytes()[:cut])
    with one_line(message):
        load(shards)


def test_a_damaged_header_is_refused(shards: Path) -> None:
    file = shards / "train-001.tar"
    with tarfile.open(file) as archive:
        start = archive.getmembers()[3].offset
    content = bytearray(file.read_bytes())
    content[start : start + 20] = b"x" * 20
    file.write_bytes(content)
    with one_line("train-001.tar: the archive is damaged .bad header."):
        load(shards)


def test_an_archive_that_is_cut_while_a_trial_reads_it_is_reported(shards: Path) -> None:
    data = load(shards)
    file = shards / "val-000.tar"
    file.write_bytes(file.read_bytes()[:2_000])
    with one_line("val-000.tar: the archive is truncated"):
        [data.test.images[index] for index in range(len(data.test))]


def test_images_need_a_class(shards: Path, folders: Path, tmp_path: Path) -> None:
    (shards / "val-000.tar").unlink()
    with tarfile.open(shards / "val-000.tar", "w") as archive:
        archive.add(next((folders / "val").glob("*/*")), "a.jpg")
    with one_line("val-000.tar: no class for 'a.jpg': expected <class>/<image>, or a file <image>.cls"):
        load(shards)
    shutil.copy(shards / "train-000.tar", shards / "val-000.tar")
    (shards / "train-001.tar").unlink()
    assert load(shards).rows()["test"] == sum(load(shards).rows()[split] for split in ("train", "dev"))
