"""Trained trials, shared by the tests of a module."""

from __future__ import annotations

import pytest

from dropbench.harness.analysis.trained import Trained
from tests.harness.analysis.trained_runs import train_small


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_small(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_small(tmp_path_factory.mktemp("runs"), "trec-synthetic")
