"""The page of a suite in a real browser: no errors, no network, sorting, links and charts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from db.report.page.document import page
from db.report.view.view import View
from db.store.store import Store

if TYPE_CHECKING:
    from tests.db.report.conftest import Reader, Runs, Tables

    Read = Callable[..., Reader]

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(params=["plain", "hostile"])
def file(request: pytest.FixtureRequest, tmp_path: Path, store: Store, tables: Tables, written: Runs) -> Path:
    """Write a page; the hostile one has a long label with markup and control characters."""
    label = (
        "<img src=x onerror=alert(1)>" + "\u202e\x1b[2J" + "W" * 10_000 if request.param == "hostile" else "dropkey 0.3"
    )
    suite = tables.suite(label=label)
    cells = tables.resolve(suite)
    values = {(label if row == "dropkey 0.3" else row, column): seeds for (row, column), seeds in tables.values.items()}
    written.fill(store, tmp_path / "runs", cells, values, label if request.param == "hostile" else "")
    view: View = tables.view(store, cells, suite)
    file = tmp_path / "page.html"
    file.write_text(page(view, store, tmp_path / "runs"), encoding="utf-8")
    return file


def test_a_page_works_offline(read: Read, file: Path) -> None:
    for options in ({"viewport": PHONE, "color_scheme": "dark"}, {"viewport": DESK, "color_scheme": "light"}):
        reader = read(file.as_uri(), offline=True, **options)
        reader.draw_charts()
        assert reader.overflow() <= 0
        shown = reader.page
        background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(20, 23, 27)") == (options["color_scheme"] == "dark")

        rows = reader.first_column()
        head = shown.locator(".results thead th").nth(1)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert reader.first_column() == [rows[1], rows[0], rows[2]]
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert reader.first_column() == [rows[2], rows[0], rows[1]]
        head.locator("button").press("Space")
        assert reader.first_column() == rows

        link = shown.locator(".results tbody").nth(1).locator("td a.open").first
        link.press("Enter")
        cell = shown.locator(link.get_attribute("href"))
        cell.locator("details.trial summary").first.click()
        assert cell.locator("pre").first.inner_text().rstrip().endswith("last line")
        assert shown.evaluate("document.activeElement.tagName") == "SUMMARY"
        shown.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        assert reader.overflow() <= 0

        lines = shown.locator("figure.chart").first.locator(".mark-symbol path")
        before = lines.count()
        shown.locator(".legend button").nth(1).click()
        paths = "document.querySelector('figure.chart').querySelectorAll('.mark-symbol path')"
        reader.until(f"{paths}.length < {before}")
        assert reader.requests == [file.as_uri()]


def test_charts_take_the_colors_of_the_scheme(read: Read, file: Path) -> None:
    reader = read(file.as_uri(), viewport=DESK, color_scheme="light")
    reader.draw_charts()
    first = "document.querySelector('figure.chart svg .mark-symbol path').getAttribute('fill')"
    light = reader.page.evaluate(first)
    reader.page.emulate_media(color_scheme="dark")
    reader.until(f"{first} !== '{light}'")
