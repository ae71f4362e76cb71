"""Real text and image sets, if DROPBENCH_DATA has them."""

from __future__ import annotations

import numpy as np

from dropbench.tasks.data import read
from dropbench.tasks.data.classification import ImageClassificationData, TextClassificationData
from tests.tasks.data.conftest import RealSource


def test_trec(real: RealSource) -> None:
    data = read(real("trec"), TextClassificationData)
    assert data.rows() == {"train": 4907, "dev": 545, "test": 500}
    assert data.class_rows()["test"] == {
        "description": 138, "entity": 94, "abbreviation": 9, "human": 65, "location": 81, "number": 113,
    }  # fmt: skip
    assert data.test.texts[0] == "How far is it from Denver to Aspen ?"
    assert data.classes[data.test.labels[0]] == "number"


def test_mr(real: RealSource) -> None:
    data = read(real("mr"), TextClassificationData)
    assert data.rows() == {"train": 8530, "dev": 1066, "test": 1066}
    assert data.class_rows()["test"] == {"negative": 533, "positive": 533}
    # Some of the published rows have the characters at which str.splitlines would cut.
    assert sum(map(sum, (rows.values() for rows in data.class_rows().values()))) == 10662


def test_ag_news(real: RealSource) -> None:
    data = read(real("ag-news"), TextClassificationData)
    assert data.rows()["test"] == 7600
    assert set(data.class_rows()["test"].values()) == {1900}
    assert data.classes == ("World", "Sports", "Business", "Sci/Tech")
    assert not any("\\" in text for text in data.test.texts)
    assert any('"' in text for text in data.test.texts)


def test_cifar100(real: RealSource) -> None:
    data = read(real("cifar100"), ImageClassificationData)
    assert len(data.classes) == 100
    for rows in data.class_rows().values():
        assert len(set(rows.values())) == 1
    assert data.train.images[0].shape == (32, 32, 3)
    # In photographs, neighboring pixels are similar along both axes, unless planes or rows are mixed up.
    images = np.stack([data.test.images[index].astype(float) for index in range(200)])
    spread = images.std()
    assert np.abs(np.diff(images, axis=1)).mean() < spread / 3
    assert np.abs(np.diff(images, axis=2)).mean() < spread / 3
