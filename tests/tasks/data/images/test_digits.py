"""scikit-learn's digits."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.classification import ImageClassificationData
from tests.tasks.data.conftest import WriteSource

ROW = b"0," * 64 + b"1\n"


@pytest.fixture(scope="module")
def digits() -> ImageClassificationData:
    return read(locate("digits"), ImageClassificationData)


def test_the_splits(digits: ImageClassificationData) -> None:
    assert digits.rows() == {"train": 1258, "dev": 180, "test": 359}
    assert digits.classes == tuple("0123456789")
    assert min(digits.class_rows()["dev"].values()) >= 17
    assert any("70 % train" in note for note in digits.notes)


def test_the_small_set_has_other_splits_of_the_same_images(digits: ImageClassificationData) -> None:
    small = read(locate("digits-small"), ImageClassificationData)
    assert small.rows() == {"train": 359, "dev": 360, "test": 1078}
    images = [
        sorted(split.images[index].tobytes() for split in data.splits().values() for index in range(len(split)))
        for data in (digits, small)
    ]
    assert images[0] == images[1]


def test_the_rows_are_those_of_scikit_learn(digits: ImageClassificationData) -> None:
    published = load_digits()
    assert (digits.train.images[0].shape, str(digits.train.images[0].dtype)) == ((8, 8, 1), "uint8")
    expected = sorted(
        (int(label), np.rint(image * 255 / 16).astype(int).ravel().tolist())
        for label, image in zip(published.target, published.images, strict=True)
    )
    read_rows = sorted(
        (int(split.labels[index]), split.images[index].astype(int).ravel().tolist())
        for split in digits.splits().values()
        for index in range(len(split))
    )
    assert read_rows == expected


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip",
        gzip.compress(ROW * 50)[:30],
        gzip.compress(b"a,b\n"),
        gzip.compress(ROW.replace(b"0,", b"17,", 1)),
        gzip.compress(b"0," * 64 + b"12\n"),
    ],
    ids=["no gzip", "cut", "text", "pixel", "label"],  # the bytes hold the time of day
)
def test_a_damaged_file_is_reported(source: WriteSource, content: bytes) -> None:
    with pytest.raises(InputError, match=r"digits\.csv\.gz: "):
        read(source("digits", {"digits.csv.gz": content}), ImageClassificationData)
