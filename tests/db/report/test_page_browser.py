"""The page of a suite in a real browser: no error, no network, and what a reader does with it."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from db.report.page import page
from db.report.view import View
from db.store import Store

if TYPE_CHECKING:
    from tests.db.report.conftest import Ran, Tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Reader:
    """A reader of a page, who notes what goes wrong and what is asked of any network."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(120_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return wide

    def until(self, holds: str, seconds: float = 120.0) -> None:
        """Wait for a condition; Playwright's own way evaluates text in the page, which its policy forbids."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(holds):
            assert time.monotonic() < end, holds
            self.page.wait_for_timeout(50)

    def see_plots(self) -> None:
        """Scroll past every plot until it is drawn."""
        charts = self.page.locator("figure.chart")
        for number in range(charts.count()):
            charts.nth(number).scroll_into_view_if_needed()
            charts.nth(number).locator("svg").wait_for()

    def first_column(self) -> list[str]:
        """The labels of the rows, from the top."""
        found: list[str] = self.page.locator(".results tbody tr:first-child th").all_inner_texts()
        return found


@pytest.fixture(params=["plain", "hostile"])
def file(request: pytest.FixtureRequest, tmp_path: Path, store: Store, tables: Tables, ran: Ran) -> Path:
    """A page on the disk; the hostile one has a label as long and as bad as they come."""
    label = (
        "<img src=x onerror=alert(1)>" + "\u202e\x1b[2J" + "W" * 10_000 if request.param == "hostile" else "dropkey 0.3"
    )
    suite = tables.suite(label=label)
    asked = tables.ask(suite)
    values = {(label if row == "dropkey 0.3" else row, column): its for (row, column), its in tables.values.items()}
    ran.fill(store, tmp_path / "runs", asked, values, label if request.param == "hostile" else "")
    view: View = tables.view(store, asked, suite)
    made = tmp_path / "page.html"
    made.write_text(page(view, store, tmp_path / "runs"), encoding="utf-8")
    return made


def test_a_page_is_read_without_a_network(browser: Any, file: Path) -> None:
    for options in ({"viewport": PHONE, "color_scheme": "dark"}, {"viewport": DESK, "color_scheme": "light"}):
        reader = Reader(browser, file.as_uri(), offline=True, **options)
        reader.see_plots()
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
        shown.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert reader.overflow() <= 0

        lines = shown.locator("figure.chart").first.locator(".mark-symbol path")
        before = lines.count()
        shown.locator(".legend button").nth(1).click()
        paths = "document.querySelector('figure.chart').querySelectorAll('.mark-symbol path')"
        reader.until(f"{paths}.length < {before}")
        assert reader.wrong == []
        assert reader.asked == [file.as_uri()]
        reader.context.close()


def test_plots_take_the_colours_of_the_scheme(browser: Any, file: Path) -> None:
    reader = Reader(browser, file.as_uri(), viewport=DESK, color_scheme="light")
    reader.see_plots()
    first = "document.querySelector('figure.chart svg .mark-symbol path').getAttribute('fill')"
    light = reader.page.evaluate(first)
    reader.page.emulate_media(color_scheme="dark")
    reader.until(f"{first} !== '{light}'")
    assert reader.wrong == []
    reader.context.close()
