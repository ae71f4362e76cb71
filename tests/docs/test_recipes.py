"""docs/recipes.md follows from the sources' values, the recipes and the suites; every difference has a note."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import Any

import pytest

from docs import write_recipes
from dropbench.harness.files import read_yaml
from dropbench.harness.suites.suite import suite_names
from tests.paths import DOCS

ENTRIES: dict[str, Any] = {entry["title"]: entry for entry in read_yaml(write_recipes.SOURCES)}
TITLE = "T2T-ViT-14 on ImageNet"


def test_the_page_is_what_its_script_writes() -> None:
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert write_recipes.page() == text, "python docs/write_recipes.py"


def test_every_suite_is_on_the_page() -> None:
    patterns = re.findall(r"`([a-z*-]+(?:/[a-z0-9*-]+)?\*?)`", (DOCS / "recipes.md").read_text(encoding="utf-8"))
    assert [name for name in suite_names() if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_page_of_keys_is_what_its_script_writes() -> None:
    text = (DOCS / write_recipes.KEYS).read_text(encoding="utf-8")
    assert write_recipes.keys_page() == text, "python docs/write_recipes.py"


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("lr", {"source": 1e-3}, "lr is 0.0005, in the source 0.001: expected the same value, or a note"),
        ("warmup", {"source": 20}, "warmup is 10, in the source 20"),
        ("lr", {"differs": "a larger rate"}, "no table shows this note: a larger rate"),
        ("lr", None, "no row for lr"),
        ("lr", {"as in the source": None}, "as in the source: a row has no such key"),
    ],
)
def test_a_difference_without_a_note_is_an_error(key: str, change: dict[str, Any] | None, message: str) -> None:
    rows = [row if row.get("key") != key else change and {**row, **change} for row in ENTRIES[TITLE]["rows"]]
    with pytest.raises(ValueError, match=message):
        list(write_recipes.section({**ENTRIES[TITLE], "rows": [row for row in rows if row]}, ENTRIES))
