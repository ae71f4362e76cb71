"""A folder for a plug-in, with its data."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dropbench.harness.checking import check, once
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a few training steps, not half a second of them."""
    monkeypatch.setattr(check, "MIN_SECONDS", 0.0)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests: what has passed a check once is not tried again, which takes two seconds."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, restored: None) -> Path:  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(once, "_passed", set())
    draw = random.Random(0)
    (tmp_path / "data/points").mkdir(parents=True)
    rows = [",".join(f"{draw.random():.6f}" for _ in range(5)) for _ in range(100)]
    (tmp_path / "data/points/points.csv").write_text("\n".join(rows))
    return tmp_path
