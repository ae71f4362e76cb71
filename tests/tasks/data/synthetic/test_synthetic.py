"""Synthetic sets: in the published formats, learnable, equal for equal seeds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from dropbench.harness.errors import InputError
from dropbench.tasks.data import DATASETS, locate, read_any
from dropbench.tasks.data.check import check
from dropbench.tasks.data.classification import ImageClassificationData, ImageSplit, TextClassificationData
from dropbench.tasks.data.synthetic_cache import write_synthetic
from dropbench.tasks.data.text.tagged import TaggedData

NAMES = [name for name in DATASETS if DATASETS.get(name).synthetic]
SLOW = ("humbi", "hico-det")
PARAMETERS = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]


def pixels(split: ImageSplit) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.stack([split.images[index].astype(np.float64).ravel() for index in range(len(split))])


def accuracy(data: TextClassificationData | ImageClassificationData) -> float:
    """Return the accuracy of a simple model."""
    if isinstance(data, TextClassificationData):
        words = CountVectorizer()
        model = MultinomialNB().fit(words.fit_transform(data.train.texts), data.train.labels)
        return float((model.predict(words.transform(data.test.texts)) == data.test.labels).mean())
    train, test = pixels(data.train), pixels(data.test)
    means = np.stack([train[data.train.labels == label].mean(0) for label in range(len(data.classes))])
    nearest = np.stack([((test - mean) ** 2).sum(1) for mean in means]).argmin(0)
    return float((nearest == data.test.labels).mean())


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_is_read_like_the_published_set_and_can_be_learned(name: str, tmp_path: Path) -> None:
    source, dataset = locate(f"{name}-synthetic", tmp_path), DATASETS.get(name)
    assert (source.synthetic, source.name, source.layout) == (True, f"{name}-synthetic", dataset.layouts[0])
    data: Any = read_any(source)
    assert (data.kind, data.name) == (dataset.kind, source.name)
    assert min(data.rows().values()) >= 10
    assert all(min(rows.values()) >= 1 for rows in data.class_rows().values())
    compared = check(replace(source, name=name), decode=False).published
    assert len(compared) == len(dataset.published)
    assert all(0 < entry.found < entry.count for entry in compared)
    if isinstance(data, (TextClassificationData, ImageClassificationData)):
        assert accuracy(data) > 0.8
    if isinstance(data, TaggedData):
        assert {tuple(split.columns) for split in data.splits().values()} == {dataset.columns}


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
