"""A small suite of the tests' own, its trials, and its table."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from db.report.terminal import print_table
from db.report.view import Asked, View, build
from db.snapshot import Snapshot, snapshot
from db.store import Store
from harness.regularizers.spec import RegularizerSpec
from harness.rundir import RunDirectory
from harness.suite import Cell, Choice, Suite, parse_suite
from harness.task import Metric
from harness.trial import Trial

Values = dict[tuple[str, str], Sequence[Any]]

VALUES: Values = {
    ("none", "TREC"): (80.0, 82.0, 87.0),  # mean 83, std sqrt(13)
    ("dropkey 0.3", "TREC"): (82.0, 83.0, 90.0),  # mean 85; paired +2, +1, +3: +2
    ("dropkey 0.5", "TREC"): (79.0, "OutOfMemoryError: no memory", 84.0),  # mean 81.5; paired −1, −3: −2
    ("none", "MR"): (70.0, "queued", "queued"),
    ("dropkey 0.3", "MR"): ("running", 75.0, "submitted"),  # no seed in common: 75 − 70
    ("dropkey 0.5", "MR"): ("queued", "queued", "queued"),
}


class Tables:
    """Makes suites, fills databases with what became of their trials, and draws the table."""

    values = VALUES

    def __init__(self, make_trial: Callable[..., Trial]) -> None:
        self.make_trial = make_trial

    def suite(
        self, columns: Sequence[str] = ("TREC", "MR"), title: str = "A table", label: str = "dropkey 0.3"
    ) -> Suite:
        data = {"TREC": "trec", "MR": "mr"}
        published = {"TREC": (88.4, [90.0, 0.5], None), "MR": (76.0, None, 77.0)}
        return parse_suite(
            {
                "title": title,
                "source": "these tests",
                "metric": "accuracy",
                "trial": {"task": "text-classification", "model": "text-transformer"},
                "columns": [{"label": column, "trial": {"data": data[column]}} for column in columns],
                "rows": [
                    {"label": "none", "baseline": True, "trial": {"regularizer": "none"},
                     "published": [published[column][0] for column in columns]},
                    {"label": label, "trial": {"regularizer": "dropkey", "params": {"ratio": 0.3}},
                     "published": [published[column][1] for column in columns]},
                    {"label": "dropkey 0.5", "trial": {"regularizer": "dropkey", "params": {"ratio": 0.5}},
                     "published": [published[column][2] for column in columns]},
                ],
                "presets": {"mini": {"seeds": 3}, "paper": {"seeds": 5}},
            },
            "mine", "mine.yaml",
        )  # fmt: skip

    def ask(self, suite: Suite, choice: Choice | None = None) -> list[Asked]:
        """The trials as a task would make them."""
        asked = []
        for cell in suite.cells(choice or Choice()):
            request = cell.request
            spec = RegularizerSpec(name=request.regularizer, params=request.params)
            rest = {"regularizer": spec, "preset": request.preset, "overrides": request.overrides}
            asked.append(Asked(cell, [self.make_trial(seed, data=request.data, **rest) for seed in cell.seeds]))
        return asked

    def fill(self, store: Store, asked: Sequence[Asked], values: Values) -> None:
        """A number: succeeded with it; None: without one; a state: in it; another text: failed of it; "": left out."""
        for one in asked:
            for trial, value in zip(one.trials, values.get((one.cell.row, one.cell.column), ("",) * 9), strict=False):
                if isinstance(value, str):
                    if value in ("queued", "running", "submitted", "cancelled"):
                        store.record([Snapshot(trial, value)])  # type: ignore[arg-type]
                    elif value:
                        store.record([Snapshot(trial, "failed", value)])
                else:
                    store.record([Snapshot(trial, "succeeded", None, [], [], [("test/accuracy", -1, value)])])

    def view(
        self, store: Store, asked: Sequence[Asked], suite: Suite | None = None, metric: Metric | None = None
    ) -> View:
        """The table; of accuracies, unless said otherwise."""

        def known(cell: Cell) -> Metric:
            return metric or Metric("accuracy")

        return build(suite or self.suite(), asked, store, known)

    def drawn(self, view: View, width: int = 80, **options: Any) -> str:
        """As on a console of that width."""
        file = io.StringIO()
        print_table(view, Console(file=file, width=width, highlight=False, **options))
        return file.getvalue()


@pytest.fixture(scope="session")
def tables(make_trial: Callable[..., Trial]) -> Tables:
    """See `Tables`."""
    return Tables(make_trial)


@pytest.fixture
def filled(store: Store, tables: Tables) -> View:
    """The table of `VALUES`."""
    asked = tables.ask(tables.suite())
    tables.fill(store, asked, VALUES)
    return tables.view(store, asked)


class Ran:
    """Makes run directories of the tables' trials as workers leave them, and takes them over into a database."""

    def __init__(
        self, tables: Tables, make_directory: Callable[..., RunDirectory], attempt: Callable[..., Any]
    ) -> None:
        self.tables, self.make_directory, self.attempt = tables, make_directory, attempt

    def fill(self, store: Store, runs: Path, asked: Sequence[Asked], values: Values, text: str = "") -> None:
        """As `Tables.fill`; `text` is found wherever a run leaves words."""
        for one in asked:
            for trial, value in zip(one.trials, values.get((one.cell.row, one.cell.column), ()), strict=False):
                if value in ("queued", "submitted", "running", "cancelled"):
                    store.record([Snapshot(trial, value)])
                elif value != "":
                    self.ran(store, runs, trial, value, text)

    def ran(self, store: Store, runs: Path, trial: Trial, value: float | str, text: str = "") -> RunDirectory:
        """One that has ended: with a number, or failed of a text."""
        failed = isinstance(value, str)
        end = self.attempt(
            "failed" if failed else "succeeded", value if failed else None, number=1, cpus=2, gpus=0, message=text,
            peak_memory_bytes=3 * 2**29, steps_done=40, host=f"node1{text}", executor="local", submission="a" * 32,
        )  # fmt: skip
        metrics = None if failed else {"test/accuracy": value, "dev/accuracy": float(value) + 0.5}
        directory = self.make_directory(runs, trial, attempts=[end], metrics=metrics, suites=["mine"])
        for step in range(1, 41):
            directory.append_event("train", step=step, steps=40, loss=2.0 / step + trial.seed / 10, lr=0.1)
            if step % 10 == 0:
                directory.append_event("evaluate", step=step, split="dev", metrics={"accuracy": 50.0 + step})
        sites = [
            f"  blocks.{n}.attn  encoder-self  layer {n + 1}/4  heads 4  keys  ratio 0.{3 - n}00" for n in range(4)
        ]
        known = {"host": f"node1{text}", "cores": 2, "python": "3.11", "notes": [f"a note{text}"], "sites": sites}
        (directory.path / "environment.json").write_text(json.dumps(known))
        (directory.path / "log.txt").write_text(f"--- attempt 1\nfirst{text}\n\x1b[31mlast line\x1b[0m\n")
        store.record([snapshot(directory)])
        return directory


@pytest.fixture(scope="session")
def ran(tables: Tables, make_directory: Callable[..., RunDirectory], attempt: Callable[..., Any]) -> Ran:
    """See `Ran`."""
    return Ran(tables, make_directory, attempt)


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; it ends with the module, as Playwright may wait for ever at the end of a session."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not installed")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def read(browser: Any) -> Iterator[Callable[..., Reader]]:
    """(address, **options of a context) → a reader of that page, who must have found nothing wrong at the end."""
    readers: list[Reader] = []

    def opened(address: str, **options: Any) -> Reader:
        readers.append(Reader(browser, address, **options))
        return readers[-1]

    yield opened
    for one in readers:
        one.context.close()
    assert [one.wrong for one in readers] == [[] for _ in readers]
