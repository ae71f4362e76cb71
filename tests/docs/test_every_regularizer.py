"""Every registered regularizer has a card, an error of its reference, and a section and a row of the gallery.

Its contract is tested by `tests.adapters.test_every_regularizer`, for whatever is registered.
"""

from __future__ import annotations

import json

import pytest

from docs.draw_gallery import section
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.composition import Composition
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods.reference import TOLERANCE
from tests.paths import DOCS
from tests.reference_errors import FILE, with_table

ERRORS: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
GALLERY, PARITY = ((DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("generated/gallery", "parity"))


@pytest.mark.parametrize("name", list(REGULARIZERS))
def test_it_has_a_card_a_reference_and_its_sections_of_the_pages(name: str) -> None:
    assert find_card(name) is not None
    built = build_regularizer(name)
    for part in [part.name for part in built.parts] if isinstance(built, Composition) else [name]:
        assert part in ERRORS, "test it with `reference.check`, then run `python -m tests.reference_errors`"
        assert ERRORS[part] <= TOLERANCE
    assert section(name).strip() in GALLERY, "python docs/draw_gallery.py"
    assert name == "none" or f"](#{name})" in GALLERY


def test_the_table_of_errors_is_that_of_the_tests() -> None:
    assert set(ERRORS) <= {*REGULARIZERS}
    assert with_table(PARITY) == PARITY, "python -m tests.reference_errors"
