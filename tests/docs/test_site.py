"""The documentation: its links and anchors exist, its site has every page and name, and builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dropbench
from docs import draw_gallery
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import Card, find_card
from dropbench.harness.regularizers.spec import build_regularizer
from tests.paths import DOCS, ROOT

PAGES = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md"))]
PAGES += sorted(DOCS.rglob("*.md"))
NAMED_PAGE = re.compile(r"(?<![\w./-])(docs/[\w./-]+\.md)(?:#([\w-]+))?")


@cache
def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that a forge gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return frozenset(slug(title) for title in titles)


def slug(title: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
    kept = (letter for letter in text if letter in " -_" or unicodedata.category(letter)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_anchors_exist(page: Path) -> None:
    wrong = []
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(ROOT) and target.exists()
        if not inside or (anchor and anchor not in anchors(target)):
            wrong.append(f"{path}#{anchor}")
    assert wrong == []


def test_pages_that_code_and_suites_name_exist() -> None:
    folders = ("adapters", "benchmarks", "db", "harness", "jobs", "tasks", "tests")
    files = [file for folder in folders for kind in ("py", "yaml") for file in (ROOT / folder).rglob(f"*.{kind}")]
    found = [(file, *each) for file in files for each in re.findall(NAMED_PAGE, file.read_text(encoding="utf-8"))]
    assert len(found) > 20
    wrong = [f"{file.relative_to(ROOT)}: {page}#{anchor}" for file, page, anchor in found if not named(page, anchor)]
    assert wrong == []


def named(page: str, anchor: str) -> bool:
    """Return whether a page exists, and has the anchor if one is given."""
    return (ROOT / page).is_file() and (not anchor or anchor in anchors(ROOT / page))


def test_the_reference_has_every_public_name() -> None:
    headings = re.findall(r"^### `(\w+)`$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(dropbench.__all__)


def test_the_navigation_has_every_page() -> None:
    config = (DOCS / "generator" / "conf.py").read_text(encoding="utf-8")
    contents = re.search(r"^CONTENTS = \{(.*?)^\}", config, re.MULTILINE | re.DOTALL)
    assert contents is not None
    listed = set(re.findall(r"[\w/-]+/[\w-]+|[A-Z]{9,}", contents[1]))
    pages = {page.relative_to(ROOT).with_suffix("").as_posix() for page in PAGES}
    assert listed == {page for page in pages if page != "README" and not page.startswith("docs/tasks/")}


def test_the_gallery_is_what_its_script_writes() -> None:
    assert draw_gallery.page() == (DOCS / "generated" / "gallery.md").read_text(encoding="utf-8")
    drawn = {name for name in REGULARIZERS if draw_gallery.described(name, build_regularizer(name))}
    assert {path.stem for path in (DOCS / "generated/images/regularizers").iterdir()} == drawn


@pytest.mark.parametrize(
    "card", [card for name in REGULARIZERS if (card := find_card(name))], ids=lambda card: card.source
)
def test_the_site_typesets_the_formula_of_each_card(card: Card) -> None:
    latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
    assert "<math" in latex2mathml.tex2mathml(card.formula, as_block=True)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if missing := [name for name in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-E", "-c", "docs/generator", ".", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    front = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not re.search(r'<(?:link|script)[^>]*(?:href|src)="(?:https?:)?//', front), "loaded from the network"
    assert "<mfrac>" in (tmp_path / "docs" / "generated" / "gallery.html").read_text(encoding="utf-8")
    reference = (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    assert [name for name in dropbench.__all__ if f'id="dropbench.{name}"' not in reference] == []


@pytest.mark.slow
def test_the_pictures_are_what_the_regularizers_draw(tmp_path: Path) -> None:
    for script, target in (("draw_masks.py", tmp_path / "masks.png"), ("draw_gallery.py", tmp_path / "generated")):
        subprocess.run([sys.executable, DOCS / script, target], check=True, cwd=ROOT)
    drawn = (path.relative_to(DOCS) for path in (DOCS / "generated/images/regularizers").iterdir())
    for picture in (Path("masks.png"), *drawn):
        with Image.open(tmp_path / picture) as new, Image.open(DOCS / picture) as old:
            assert new.size == old.size
            pixels = [np.asarray(image.convert("RGB"), dtype=float) for image in (new, old)]
        # Fonts may differ by a shade; a cell that changed its color is thousands of differing pixels.
        assert (abs(pixels[0] - pixels[1]).max(axis=-1) > 64).mean() < 0.002, picture
