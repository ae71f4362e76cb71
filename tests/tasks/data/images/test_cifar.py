"""CIFAR-10 and CIFAR-100, binary and Python versions."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.errors import InputError
from tasks.data import read
from tasks.data.classification import ImageClassificationData, Labels, Pixels

if TYPE_CHECKING:
    from tests.tasks.data.conftest import WriteSource

NAMES10 = [f"thing_{number}" for number in range(10)]
NAMES100 = [f"thing_{number}" for number in range(100)]


def rows(count: int, classes: int, seed: int) -> tuple[Labels, Pixels]:
    random = np.random.RandomState(seed)
    return np.arange(count, dtype=np.int64) % classes, random.randint(0, 256, (count, 3072)).astype(np.uint8)


def records(labels: Labels, pixels: Pixels, coarse: bool = False) -> bytes:
    columns = [labels // 5] * coarse + [labels]
    return np.concatenate([np.stack(columns, axis=1).astype(np.uint8), pixels], axis=1).tobytes()


def python2_batch(labels: Labels, pixels: Pixels, key: str = "labels") -> bytes:
    """Return a batch as published, pickled by Python 2, opcode by opcode: protocol 2, byte strings, numpy.core."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    content = pixels.tobytes()
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R" + b"(K\x03" + text("|") + b"NNN" + number(-1) * 2
    dtype += b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
    array += b"(K\x01" + number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86" + dtype + b"\x89"
    array += b"T" + len(content).to_bytes(4, "little") + content + b"tb"
    label_list = b"](" + b"".join(number(label) for label in labels.tolist()) + b"e"
    return (
        b"\x80\x02}("
        + text("batch_label")
        + text("batch 1 of 5")
        + text("data")
        + array
        + text(key)
        + label_list
        + b"u."
    )


def cifar10_binary(**changes: bytes) -> dict[str, bytes]:
    files = {f"data_batch_{number}.bin": records(*rows(20, 10, number)) for number in range(1, 6)}
    files |= {"test_batch.bin": records(*rows(10, 10, 6)), "batches.meta.txt": ("\n".join(NAMES10) + "\n\n").encode()}
    return files | {name.replace("__", "."): content for name, content in changes.items()}


def cifar100_binary(**changes: bytes) -> dict[str, bytes]:
    files = {
        "train.bin": records(*rows(1000, 100, 1), coarse=True),
        "test.bin": records(*rows(100, 100, 2), coarse=True),
        "fine_label_names.txt": "\n".join(NAMES100).encode(),
    }
    return files | {name.replace("__", "."): content for name, content in changes.items()}


def everything(data: ImageClassificationData) -> list[tuple[str, int, bytes]]:
    return [
        (name, int(split.labels[index]), split.images[index].tobytes())
        for name, split in data.splits().items()
        for index in range(len(split))
    ]


def test_cifar10_binary(source: WriteSource) -> None:
    data = read(source("cifar10", cifar10_binary()), ImageClassificationData)
    assert data.rows() == {"train": 90, "dev": 10, "test": 10}
    assert data.classes == tuple(NAMES10)
    assert set(data.class_rows()["dev"].values()) == {1}


def test_pixels_are_planes_of_rows(source: WriteSource) -> None:
    labels, pixels = rows(10, 10, 6)
    data = read(source("cifar10", cifar10_binary()), ImageClassificationData)
    image = data.test.images[3]
    assert image.shape == (32, 32, 3)
    assert image.dtype == np.uint8
    # The published order: all of red, then green, then blue, each row by row.
    assert image[5, 7].tolist() == [pixels[3, plane * 1024 + 5 * 32 + 7] for plane in range(3)]
    assert data.test.labels.tolist() == labels.tolist()


def test_cifar100_takes_the_fine_label(source: WriteSource) -> None:
    data = read(source("cifar100", cifar100_binary()), ImageClassificationData)
    assert data.test.labels.tolist() == list(range(100))
    assert data.rows() == {"train": 900, "dev": 100, "test": 100}
    assert set(data.class_rows()["dev"].values()) == {1}


def python_files(name: str, form: str) -> dict[str, bytes]:
    """Return the rows of the binary files as pickles."""
    key, names = ("labels", NAMES10) if name == "cifar10" else ("fine_labels", NAMES100)

    def batch(labels: Labels, pixels: Pixels) -> bytes:
        if form == "python 2":
            return python2_batch(labels, pixels, key)
        content: dict[Any, Any] = {b"data" if form == "bytes keys" else "data": pixels}
        content[b"batch_label"] = b"batch 1 of 5"
        content[key.encode() if form == "bytes keys" else key] = labels.tolist()
        content["filenames"] = [b"a.png"] * len(labels)
        return pickle.dumps(content, protocol=5 if form == "protocol 5" else 2)

    if name == "cifar10":
        files = {f"data_batch_{number}": batch(*rows(20, 10, number)) for number in range(1, 6)}
        return files | {
            "test_batch": batch(*rows(10, 10, 6)),
            "batches.meta": pickle.dumps({"label_names": names, "num_vis": 3072}, protocol=2),
        }
    return {
        "train": batch(*rows(1000, 100, 1)),
        "test": batch(*rows(100, 100, 2)),
        "meta": pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, protocol=2),
    }


@pytest.mark.parametrize("form", ["python 2", "protocol 2", "protocol 5", "bytes keys"])
@pytest.mark.parametrize(("name", "binary"), [("cifar10", cifar10_binary), ("cifar100", cifar100_binary)])
def test_the_python_version_gives_the_same_rows(source: WriteSource, name: str, binary: Any, form: str) -> None:
    pickled = python_files(name, form)
    located = source(name, {f"{file}": content for file, content in pickled.items()})
    from_python = read(located, ImageClassificationData)
    for file in pickled:
        (located.folder / file).unlink()
    from_binary = read(source(name, binary()), ImageClassificationData)
    assert everything(from_python) == everything(from_binary)
    assert from_python.classes == from_binary.classes


def test_pickle_reads_the_python_2_batch_of_these_tests() -> None:
    labels, pixels = rows(4, 10, 0)
    loaded = pickle.loads(python2_batch(labels, pixels), encoding="latin1")  # noqa: S301
    assert (loaded["data"] == pixels).all()
    assert loaded["labels"] == labels.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"test_batch__bin": records(*rows(10, 10, 0))[:-1]},
            r"test_batch\.bin: 30729 bytes: expected a multiple of 3073",
        ),
        (
            {"data_batch_3__bin": records(*rows(11, 11, 0))},
            r"data_batch_3\.bin: image 11 has label 10: ",
        ),
        ({"data_batch_1__bin": b""}, r"data_batch_1\.bin: the file is empty"),
        ({"batches__meta__txt": b"one\ntwo\n"}, r"batches\.meta\.txt: 2 class names: expected 10"),
    ],
)
def test_damage_to_the_binary_version_is_reported(source: WriteSource, changes: dict[str, bytes], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(source("cifar10", cifar10_binary(**changes)), ImageClassificationData)


def test_cifar10_in_place_of_cifar100_is_reported(source: WriteSource) -> None:
    located = source("cifar100", cifar100_binary(train__bin=records(*rows(20, 10, 0))))
    with pytest.raises(
        InputError, match=r"train\.bin: 61460 bytes: expected a multiple of 3074, as in the binary version"
    ):
        read(located, ImageClassificationData)


def test_an_extra_class_name_is_reported(source: WriteSource) -> None:
    names = ("\n".join([*NAMES100, "one more"])).encode()
    with pytest.raises(InputError, match=r"fine_label_names\.txt: 101 class names: expected 100"):
        read(source("cifar100", cifar100_binary(fine_label_names__txt=names)), ImageClassificationData)


GOOD = {"data": rows(100, 100, 0)[1], "fine_labels": list(range(100))}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"fine_labels": [1]}, r"expected an array 'data' of \(N, 3072\) bytes"),
        ({**GOOD, "data": GOOD["data"].astype(np.float32)}, "expected an array 'data'"),  # type: ignore[attr-defined]
        ({**GOOD, "data": [1, 2]}, "expected an array 'data'"),
        ({"data": GOOD["data"]}, "expected a list 'fine_labels' of integers"),
        ({**GOOD, "fine_labels": ["cat"] * 100}, "expected a list 'fine_labels'"),
        ({**GOOD, "fine_labels": [True] * 100}, "expected a list 'fine_labels'"),
        ({**GOOD, "fine_labels": [10**30] * 100}, "expected a list 'fine_labels'"),
        ({**GOOD, "fine_labels": list(range(99))}, "100 images, but 99 labels"),
        ({**GOOD, "fine_labels": [*range(99), 100]}, "image 100 has label 100: expected 0 to 99"),
        ({**GOOD, "fine_labels": [-1, *range(1, 100)]}, "image 1 has label -1: expected 0 to 99"),
    ],
)
def test_an_invalid_python_batch_is_reported(source: WriteSource, batch: Any, message: str) -> None:
    files = python_files("cifar100", "protocol 2") | {"train": pickle.dumps(batch, protocol=2)}
    with pytest.raises(InputError, match=f"train: {message}"):
        read(source("cifar100", files), ImageClassificationData)


def test_labels_in_an_array_are_read_too(source: WriteSource) -> None:
    batch = pickle.dumps({**GOOD, "fine_labels": np.arange(100)}, protocol=2)
    files = python_files("cifar100", "protocol 2") | {"test": batch}
    data = read(source("cifar100", files), ImageClassificationData)
    assert data.test.labels.tolist() == list(range(100))


def test_meta_without_names_is_reported(source: WriteSource) -> None:
    files = python_files("cifar100", "protocol 2") | {"meta": pickle.dumps({"fine_label_names": "cat"}, protocol=2)}
    with pytest.raises(InputError, match="meta: expected a list 'fine_label_names' of class names"):
        read(source("cifar100", files), ImageClassificationData)
