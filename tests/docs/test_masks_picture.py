"""The picture in docs/regularizers.md is what the code draws today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.paths import DOCS


@pytest.mark.slow
def test_the_picture_is_what_the_regularizers_draw(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "draw_masks.py", tmp_path / "masks.png"], check=True, cwd=DOCS.parent)
    with Image.open(tmp_path / "masks.png") as drawn, Image.open(DOCS / "masks.png") as kept:
        assert drawn.size == kept.size
        new, old = (np.asarray(image.convert("RGB"), dtype=float) for image in (drawn, kept))
    # Fonts may differ by a shade; a cell that changed its colour is thousands of differing pixels.
    assert (abs(new - old).max(axis=-1) > 64).mean() < 0.002


def test_the_page_shows_it() -> None:
    assert "(masks.png)" in (DOCS / "regularizers.md").read_text(encoding="utf-8")
