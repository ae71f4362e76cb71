"""Synthetic sets: in the published formats, learnable, equal for equal seeds."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, locate, read_any
from dropbench.tasks.data.classification import ImageClassificationData, ImageSplit, TextClassificationData
from dropbench.tasks.data.synthetic_cache import SEED, VERSION, write_synthetic

NAMES = [name for name in DATASETS if DATASETS.get(name).synthetic]
SLOW = ("humbi", "hico-det")
PARAMETERS = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]
CLASSIFIED = [name for name in NAMES if DATASETS.get(name).kind in ("text-classification", "image-classification")]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_by_the_same_reader_and_named_synthetic(name: str, tmp_path: Path) -> None:
    source = locate(f"{name}-synthetic", tmp_path)
    assert source.synthetic
    assert source.name == f"{name}-synthetic"
    assert source.layout is source.dataset.layouts[0]
    data = read_any(source)
    assert data.kind == DATASETS.get(name).kind
    assert min(data.rows().values()) >= 10
    assert all(min(rows.values()) >= 1 for rows in data.class_rows().values())
    assert getattr(data, "name") == f"{name}-synthetic"  # noqa: B009


def pixels(split: ImageSplit) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.stack([split.images[index].astype(np.float64).ravel() for index in range(len(split))])


@pytest.mark.parametrize("name", CLASSIFIED)
def test_it_can_be_learned(name: str) -> None:
    data = read_any(locate(f"{name}-synthetic"))
    if isinstance(data, TextClassificationData):
        words = CountVectorizer()
        model = MultinomialNB().fit(words.fit_transform(data.train.texts), data.train.labels)
        accuracy = (model.predict(words.transform(data.test.texts)) == data.test.labels).mean()
    else:
        assert isinstance(data, ImageClassificationData)
        train, test = pixels(data.train), pixels(data.test)
        means = np.stack([train[data.train.labels == label].mean(0) for label in range(len(data.classes))])
        nearest = np.stack([((test - mean) ** 2).sum(1) for mean in means]).argmin(0)
        accuracy = (nearest == data.test.labels).mean()
    assert accuracy > 0.8


@pytest.mark.parametrize("name", PARAMETERS)
def test_equal_seeds_give_equal_files_and_others_do_not(name: str, tmp_path: Path) -> None:
    dataset = DATASETS.get(name)
    prints = []
    for number, seed in enumerate((5, 5, 6)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_synthetic(dataset, folder, seed)
        prints.append(locate(name, folders={name: folder}).fingerprint())
    assert prints[0] == prints[1] != prints[2]


def test_it_is_written_once(cache: Path) -> None:
    first = locate("trec-synthetic").files[0].stat()
    assert locate("trec-synthetic").files[0].stat().st_ino == first.st_ino
    assert [path.name for path in (cache / "dropbench").glob(f"*-synthetic-*-{SEED}")] == [
        f"trec-synthetic-{VERSION}-{SEED}"
    ]


def test_concurrent_calls_write_it_once(cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        prints = list(pool.map(lambda _: locate("imagenet-synthetic").fingerprint(), range(8)))
    assert len(set(prints)) == 1
    assert [path.name for path in (cache / "dropbench").glob(f"*-synthetic-*-{SEED}")] == [
        f"imagenet-synthetic-{VERSION}-{SEED}"
    ]


def test_a_folder_of_the_user_takes_precedence(tmp_path: Path, cache: Path) -> None:
    write_synthetic(DATASETS.get("mr"), tmp_path, 9)
    assert locate("mr-synthetic", folders={"mr-synthetic": tmp_path}).folder == tmp_path
    assert not (cache / "dropbench").exists()


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        InputError, match=r"cannot write the generated set mr-synthetic: set another cache folder by XDG_CACHE_HOME"
    ):
        locate("mr-synthetic")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits on file sizes need POSIX")
def test_a_full_disk_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource
    import signal

    monkeypatch.setattr("dropbench.tasks.data.synthetic.text.ROWS_PER_CLASS", 2000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(InputError, match="cannot write the generated set mr-synthetic"):
            locate("mr-synthetic")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [path for path in (cache / "dropbench").iterdir() if path.suffix != ".lock"] == []
