"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import read
from dropbench.tasks.data.classification import ImageClassificationData, Labels, Pixels
from tests.tasks.data.conftest import WriteSource

NAMES10 = [f"thing_{number}" for number in range(10)]
NAMES100 = [f"thing_{number}" for number in range(100)]


def rows(count: int, classes: int, seed: int) -> tuple[Labels, Pixels]:
    random = np.random.RandomState(seed)
    return np.arange(count, dtype=np.int64) % classes, random.randint(0, 256, (count, 3072)).astype(np.uint8)


def records(labels: Labels, pixels: Pixels, coarse: bool = False) -> bytes:
    columns = [labels // 5] * coarse + [labels]
    return np.concatenate([np.stack(columns, axis=1).astype(np.uint8), pixels], axis=1).tobytes()


CIFAR10 = {
    **{f"data_batch_{number}.bin": records(*rows(20, 10, number)) for number in range(1, 6)},
    "test_batch.bin": records(*rows(10, 10, 6)),
    "batches.meta.txt": ("\n".join(NAMES10) + "\n\n").encode(),
}
CIFAR100 = {
    "train.bin": records(*rows(1000, 100, 1), coarse=True),
    "test.bin": records(*rows(100, 100, 2), coarse=True),
    "fine_label_names.txt": "\n".join(NAMES100).encode(),
}


def test_pixels_are_planes_of_rows(source: WriteSource) -> None:
    labels, pixels = rows(10, 10, 6)
    data = read(source("cifar10", CIFAR10), ImageClassificationData)
    assert data.rows() == {"train": 90, "dev": 10, "test": 10}
    assert data.classes == tuple(NAMES10)
    image = data.test.images[3]
    assert (image.shape, str(image.dtype)) == ((32, 32, 3), "uint8")
    # The published order: all of red, then green, then blue, each row by row.
    assert image[5, 7].tolist() == [pixels[3, plane * 1024 + 5 * 32 + 7] for plane in range(3)]
    assert data.test.labels.tolist() == labels.tolist()


def test_cifar100_takes_the_fine_label(source: WriteSource) -> None:
    data = read(source("cifar100", CIFAR100), ImageClassificationData)
    assert data.test.labels.tolist() == list(range(100))
    assert data.rows() == {"train": 900, "dev": 100, "test": 100}
    assert set(data.class_rows()["dev"].values()) == {1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_batch.bin": records(*rows(10, 10, 0))[:-1]}, "30729 bytes: expected a multiple of 3073"),
        ({"data_batch_3.bin": records(*rows(11, 11, 0))}, "image 11 has label 10: "),
        ({"batches.meta.txt": b"one\ntwo\n"}, "2 class names: expected 10"),
        (
            {"train.bin": records(*rows(20, 10, 0))},
            "61460 bytes: expected a multiple of 3074, as in the binary",
        ),
    ],
)
def test_damage_is_reported(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    (file,) = changes
    located = source("cifar10", CIFAR10 | changes) if file in CIFAR10 else source("cifar100", CIFAR100 | changes)
    with pytest.raises(InputError, match=f"{file}: {message}"):
        read(located, ImageClassificationData)
