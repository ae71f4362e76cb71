"""A small suite for tests, its trials and its table, and a browser."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from dropbench.db.report.formats.layout import fitting_grid
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.view import View, build
from dropbench.db.store.run_record import RunRecord, read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.cli.table import draw_table
from dropbench.harness.cli.text_table import to_text
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.request import Request
from dropbench.harness.suites.suite import Suite, parse_suite
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import Candidates, make_request
from tests.patience import PATIENCE

Values = dict[tuple[str, str], Sequence[Any]]
STATES = ("queued", "submitted", "running", "cancelled")

VALUES: Values = {
    ("none", "TREC"): (80.0, 82.0, 87.0),  # mean 83, std sqrt(13)
    ("dropkey 0.3", "TREC"): (82.0, 83.0, 90.0),  # mean 85; paired +2, +1, +3: +2
    ("dropkey 0.5", "TREC"): (79.0, "OutOfMemoryError: no memory", 84.0),  # mean 81.5; paired −1, −3: −2
    ("none", "MR"): (70.0, "queued", "queued"),
    ("dropkey 0.3", "MR"): ("running", 75.0, "submitted"),  # no seed in common: 75 − 70
    ("dropkey 0.5", "MR"): ("queued", "queued", "queued"),
}


@dataclass(frozen=True)
class Given:
    """A cell and its trials, one per seed."""

    cell: Cell
    trials: Sequence[Trial]


class Tables:
    """Builds suites, fills databases with results of their trials, and prints their tables."""

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

    def write(self, suite: Suite, path: Path) -> None:
        """Write a suite to a user's file."""
        path.write_text(yaml.safe_dump(json.loads(suite.model_dump_json(exclude={"name"}))))

    def resolve(self, suite: Suite, options: SuiteOptions | None = None) -> list[Given]:
        """Return the cells with the trials that a task would create."""
        cells = []
        for cell in suite.cells(options or SuiteOptions()):
            request = cell.request
            spec = RegularizerSpec(name=request.regularizer, params=request.params)
            rest = {"regularizer": spec, "preset": request.preset, "overrides": request.overrides}
            cells.append(Given(cell, [self.make_trial(seed, data=request.data, **rest) for seed in cell.seeds]))
        return cells

    def request(self, suite: Suite, cells: Sequence[Given], options: SuiteOptions | None = None) -> Request:
        """Return the request of cells."""
        pairs: list[tuple[Cell, Candidates]] = [
            (cell.cell, [({}, cell.trials)] if cell.trials else []) for cell in cells
        ]
        return make_request(suite, options or SuiteOptions(preset=cells[0].cell.request.preset), pairs).request

    def fill(self, store: Store, cells: Sequence[Given], values: Values) -> None:
        """Record a result per trial.

        A number: succeeded with it; None: succeeded without one; a state: that state; another text: failed with that
        reason; "": not recorded.
        """
        for cell in cells:
            for trial, value in zip(
                cell.trials, values.get((cell.cell.row, cell.cell.column), ("",) * 9), strict=False
            ):
                if isinstance(value, str):
                    if value in STATES:
                        store.record([RunRecord(trial, value)])  # type: ignore[arg-type]
                    elif value:
                        store.record([RunRecord(trial, "failed", value)])
                else:
                    store.record([RunRecord(trial, "succeeded", None, [], [("test/accuracy", -1, value)])])

    def view(
        self,
        store: Store,
        cells: Sequence[Given],
        suite: Suite | None = None,
        metric: Metric | None = None,
        options: SuiteOptions | None = None,
    ) -> View:
        """Return the table of a metric, by default of the accuracy."""
        request = self.request(suite or self.suite(), cells, options)
        update = {} if metric is None else {"measured": metric}
        shown = [cell.model_copy(update=update) for cell in request.cells]
        ids = [cell.candidates[0].trials if cell.candidates else () for cell in shown]
        return build(request, [CellTrials(cell, own) for cell, own in zip(shown, ids, strict=True)], store)

    def printed(self, view: View, width: int = 80) -> str:
        """Return the table as printed into a pipe of that width."""
        return to_text(fitting_grid(view, width), width) + "\n"

    def drawn(self, view: View, width: int = 80) -> str:
        """Return the table as printed on a terminal of that width."""
        file = io.StringIO()
        console = Console(file=file, width=width, highlight=False, force_terminal=True, color_system="standard")
        draw_table(fitting_grid(view, width), console)
        return file.getvalue()


@pytest.fixture(scope="session")
def tables(make_trial: Callable[..., Trial]) -> Tables:
    """Return the session's `Tables`."""
    return Tables(make_trial)


@pytest.fixture
def filled(store: Store, tables: Tables) -> View:
    """Return the table of `VALUES`."""
    cells = tables.resolve(tables.suite())
    tables.fill(store, cells, VALUES)
    return tables.view(store, cells)


class Runs:
    """Writes run directories of trials as workers do, and collects them into a database."""

    def __init__(
        self, tables: Tables, make_directory: Callable[..., RunDirectory], attempt: Callable[..., Any]
    ) -> None:
        self.tables, self.make_directory, self.attempt = tables, make_directory, attempt

    def fill(self, store: Store, root: Path, cells: Sequence[Given], values: Values, text: str = "") -> None:
        """Record results as `Tables.fill` does; `text` is part of every text that a run writes."""
        for cell in cells:
            for trial, value in zip(cell.trials, values.get((cell.cell.row, cell.cell.column), ()), strict=False):
                if value in STATES:
                    store.record([RunRecord(trial, value)])
                elif value != "":
                    self.end(store, root, trial, value, text)

    def end(self, store: Store, root: Path, trial: Trial, value: float | str, text: str = "") -> RunDirectory:
        """Write the run of a trial that succeeded with a number, or failed with a text."""
        failed = isinstance(value, str)
        attempt = self.attempt(
            "failed" if failed else "succeeded", value if failed else None, number=1, cpus=2, gpus=0, message=text,
            peak_memory_bytes=3 * 2**29, steps_done=40, host=f"node1{text}", executor="local", submission="a" * 32,
        )  # fmt: skip
        metrics = None if failed else {"test/accuracy": value, "dev/accuracy": float(value) + 0.5}
        directory = self.make_directory(root, trial, attempts=[attempt], metrics=metrics, suites=["mine"])
        for step in range(1, 41):
            directory.append_event("train", step=step, steps=40, loss=2.0 / step + trial.seed / 10, lr=0.1)
            if step % 10 == 0:
                directory.append_event("evaluate", step=step, split="dev", metrics={"accuracy": 50.0 + step})
        sites = [
            f"  blocks.{n}.attn  encoder-self  layer {n + 1}/4  heads 4  keys  ratio 0.{3 - n}00" for n in range(4)
        ]
        environment = {"host": f"node1{text}", "cores": 2, "python": "3.11", "notes": [f"a note{text}"], "sites": sites}
        (directory.path / "environment.json").write_text(json.dumps(environment))
        (directory.path / "log.txt").write_text(f"--- attempt 1\nfirst{text}\n\x1b[31mlast line\x1b[0m\n")
        store.record([read_run_record(directory)])
        return directory


@pytest.fixture(scope="session")
def written(tables: Tables, make_directory: Callable[..., RunDirectory], attempt: Callable[..., Any]) -> Runs:
    """Return the session's `Runs`."""
    return Runs(tables, make_directory, attempt)


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
