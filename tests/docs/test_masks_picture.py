"""The pictures in docs/regularizers.md and docs/generated/gallery.md are what the code draws today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.paths import DOCS


@pytest.mark.slow
def test_the_pictures_are_what_the_regularizers_draw(tmp_path: Path) -> None:
    for script, target in (("draw_masks.py", tmp_path / "masks.png"), ("draw_gallery.py", tmp_path / "generated")):
        subprocess.run([sys.executable, DOCS / script, target], check=True, cwd=DOCS.parent)
    pictures = [
        Path("masks.png"),
        *(path.relative_to(DOCS) for path in (DOCS / "generated/images/regularizers").iterdir()),
    ]
    for picture in pictures:
        with Image.open(tmp_path / picture) as drawn, Image.open(DOCS / picture) as kept:
            assert drawn.size == kept.size
            new, old = (np.asarray(image.convert("RGB"), dtype=float) for image in (drawn, kept))
        # Fonts may differ by a shade; a cell that changed its color is thousands of differing pixels.
        assert (abs(new - old).max(axis=-1) > 64).mean() < 0.002, picture


def test_the_page_shows_it() -> None:
    assert "(masks.png)" in (DOCS / "regularizers.md").read_text(encoding="utf-8")
