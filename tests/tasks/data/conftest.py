"""Data sets for the tests of the readers: small files in the published formats, and the real files if present."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dropbench.tasks.data import DATASETS, Source, locate
from dropbench.tasks.data.locate import default_folder, nearest_layout

WriteSource = Callable[[str, Mapping[str, bytes]], Source]
RealSource = Callable[[str], Source]
WriteImage = Callable[[Path, int], None]


@pytest.fixture
def source(tmp_path: Path) -> WriteSource:
    """Return a function that writes files by relative name and locates them as the set of that name."""

    def write(name: str, files: Mapping[str, bytes]) -> Source:
        for file, content in files.items():
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return locate(name, folders={name: tmp_path})

    return write


@pytest.fixture
def real() -> RealSource:
    """Return a function that locates a real set below DROPBENCH_DATA, or skips the test."""

    def find(name: str) -> Source:
        root = os.environ.get("DROPBENCH_DATA")
        if not root:
            pytest.skip("DROPBENCH_DATA is not set")
        dataset = DATASETS.get(name)
        if nearest_layout(dataset, default_folder(dataset, Path(root))).missing:
            pytest.skip(f"no {name} in DROPBENCH_DATA")
        return locate(name, Path(root))

    return find


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write synthetic sets to a folder for this test only."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def write_image() -> WriteImage:
    """Return a function that writes a small gray image; the suffix determines the format."""

    def write(path: Path, value: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels: NDArray[np.uint8] = np.full((6, 8, 3), value, np.uint8)
        Image.fromarray(pixels).save(path, format="PNG" if path.suffix == ".png" else "JPEG")

    return write
