"""Reader of scikit-learn's handwritten digits: 1,797 rows of 64 pixels (0 to 16) and a label, as gzipped csv.

It reads the file without scikit-learn, whose import takes longer than a small model's first epoch.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping

import numpy as np

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import ImageClassificationData
from dropbench.tasks.data.images.image_arrays import build_split
from dropbench.tasks.data.lines import read_file
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import three_splits

SIDE = 8
MAX_VALUE = 16


def read(source: Source) -> ImageClassificationData:
    """Read (8, 8, 1) images from 0 to 255: 70 % train, 10 % dev, 20 % test; raise InputError for a damaged file."""
    return _read(source, {"test": 20})


def read_small(source: Source) -> ImageClassificationData:
    """Read the same images, but 20 % train, 20 % dev, 60 % test: models overfit, and the test score is more precise."""
    return _read(source, {"dev": 20, "test": 60})


def _read(source: Source, percent: Mapping[Split, int]) -> ImageClassificationData:
    path = source.files[0]
    try:
        table = np.loadtxt(io.BytesIO(gzip.decompress(read_file(path))), delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}: expected gzipped csv of 64 pixels and a label") from None
    if table.shape[1] != SIDE * SIDE + 1 or table.min() < 0 or table.max() > MAX_VALUE:
        raise InputError(f"{path}: expected rows of 64 pixels from 0 to {MAX_VALUE} and a label")
    pixels = np.rint(table[:, :-1] * (255 / MAX_VALUE)).astype(np.uint8).reshape(-1, SIDE, SIDE, 1)
    names = source.dataset.class_names
    rows = build_split(path, pixels, table[:, -1].astype(np.int64), len(names))
    splits, note = three_splits({"train": rows}, percent, whole="one file", seed=source.split_seed)
    return ImageClassificationData(source.name, names, *splits, (note,))
