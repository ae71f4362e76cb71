from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from torch import nn

    from tests.adapters.families import Family


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    """Return a cache of models by family; every test must restore them."""
    return {}


@pytest.fixture
def model(family: Family, models: dict[str, nn.Module]) -> Iterator[nn.Module]:
    """Build the model of a family, and restore it after the test."""
    from dropbench import unregularize

    if family.name not in models:
        models[family.name] = family.model()
    model = models[family.name]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    yield model
    unregularize(model)
    model.load_state_dict(state)
    model.eval().zero_grad()


@pytest.fixture
def run_fresh(tmp_path: Path) -> Callable[..., str]:
    """Run a program in a fresh Python process, to test the first import of a library."""

    def run(program: str, *options: str) -> str:
        command = [sys.executable, *options, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
