"""The table of a small suite, and a browser."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from tests.db.report import tables
from tests.patience import PATIENCE


@pytest.fixture
def filled(store: Store) -> View:
    """Return the table of `tables.values`."""
    return tables.filled(store)


class Reader:
    """A page in a browser, with a record of its errors and network requests; `script` runs before those of the page."""

    def __init__(self, browser: Any, address: str, script: str = "", **options: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.page.add_init_script(script)
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return pixels

    def shows(self, selector: str, text: str) -> None:
        """Wait until an element of the page, or of the page that a link leads to, contains a text."""
        self.page.locator(selector, has_text=text).wait_for()

    def until(self, condition: str, seconds: float = PATIENCE) -> None:
        """Wait for a condition; Playwright's own method evaluates text in the page, which its policy forbids."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, condition
            self.page.wait_for_timeout(50)

    def draw_charts(self) -> None:
        """Wait until every chart is drawn."""
        self.until("[...document.querySelectorAll('figure.chart')].every((figure) => figure.querySelector('svg'))")

    def first_column(self) -> list[str]:
        """Return the labels of the rows from top to bottom."""
        labels: list[str] = self.page.locator(".results tbody tr:first-child th").all_inner_texts()
        return labels


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start headless Chromium per module: Playwright may hang at the end of a session."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def read(browser: Any) -> Iterator[Callable[..., Reader]]:
    """Open a page by its address and options of a browser context; fail at the end if a page had errors."""
    readers: list[Reader] = []

    def open_page(address: str, **options: Any) -> Reader:
        readers.append(Reader(browser, address, **options))
        return readers[-1]

    yield open_page
    for reader in readers:
        reader.context.close()
    assert [reader.errors for reader in readers] == [[] for _ in readers]
