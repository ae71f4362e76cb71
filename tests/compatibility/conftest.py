"""A user's folder as 969bcf6 left it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.written import WRITTEN, lay_plugins, restore_database, unpack_runs


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the plug-ins and suites alone."""
    lay_plugins(tmp_path)
    return tmp_path


@pytest.fixture
def trained(place: Path) -> Path:
    """The same with the run directories."""
    unpack_runs(WRITTEN / "runs.tar.xz", place)
    return place


@pytest.fixture
def complete(trained: Path) -> Path:
    """The same with the database."""
    restore_database(trained)
    return trained


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("kept")
    lay_plugins(folder)
    unpack_runs(WRITTEN / "runs.tar.xz", folder)
    restore_database(folder)
    return folder
