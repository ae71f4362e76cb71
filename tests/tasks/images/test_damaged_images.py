"""Test damaged images: `data check` reports them, and a run ends with an error of one line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.trial import TrialRequest
from dropbench.tasks.data import locate
from dropbench.tasks.images.image_classification import ImageClassification
from tests.input_errors import one_line

SMALL = {
    "image_size": 8, "epochs": 1, "batch_size": 15, "resized_crop": True, "flip": True, "crop_padding": 0,
    "model.depth": 1, "model.embed_dim": 12, "model.num_heads": 1,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the generated image folders in ImageNet's layout."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(locate("imagenet-synthetic").folder, tmp_path / "images")
    return tmp_path / "images"


def train(folder: Path, runs: Path, num_workers: int) -> dict[str, Any]:
    settings = Settings(runs=runs, folders={"imagenet": folder}, device="cpu", threads=1, num_workers=num_workers)
    request = TrialRequest(task="image-classification", data="imagenet", model="vit-cifar", overrides=SMALL)
    trial = ImageClassification.trial_for(request, settings)
    return run_trial(RunDirectory.create(runs, trial), settings)


def pick_image(folder: Path, split: str) -> Path:
    """Return an image of a split."""
    return sorted((folder / split).rglob("*.JPEG"))[1]


@pytest.mark.parametrize(("split", "num_workers"), [("train", 1), ("val", 0)])
def test_a_damaged_image_ends_the_run_with_its_name(folder: Path, tmp_path: Path, split: str, num_workers: int) -> None:
    path = pick_image(folder, split)
    path.write_bytes(path.read_bytes()[:300])
    with one_line() as caught:
        train(folder, tmp_path / "runs", num_workers)
    assert str(caught.value).startswith(f"{path}: the image is damaged: ")
