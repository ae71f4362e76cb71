from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.harness.trials.plugins import load_plugins
from tests.harness.plugins.plugin_files import Write
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """(text, path) → the path of a file with this text, loaded."""

    def write_and_load(text: str, path: str = "my.py", *, newline: str = "\n") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline=newline)
        load_plugins([file])
        return file

    return write_and_load
