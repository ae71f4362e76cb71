"""Measure tables and pages of a database of 100,000 trials and a million metric rows against fixed limits.

``DROPBENCH_BENCHMARK_TABLES=5000`` makes it smaller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks.database import campaign
from benchmarks.measure import Measurement, repeat_within
from dropbench.db.queries.compare import compare
from dropbench.db.queries.rank import rank
from dropbench.db.queries.results import results
from dropbench.db.queries.sides import read_sides
from dropbench.db.report.formats import documents
from dropbench.db.report.page.document import page
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.view import View
from dropbench.db.schema.connection import reading
from dropbench.db.store.store import Store, open_store
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, load_suite
from dropbench.jobs.cli.suite_table import suite_table
from dropbench.jobs.queue.request import request_suite

TRIALS = 100_000
TABLE_SECONDS, PAGE_SECONDS, PAGE_BYTES = 1.0, 10.0, 5 * 10**6
ROWS, COLUMNS, SEEDS = 100, ("trec", "mr", "subj"), 20
"""Of the largest suite: 6,000 trials."""


def tables() -> list[Measurement]:
    """Measure in a temporary folder."""
    count = int(os.environ.get("DROPBENCH_BENCHMARK_TABLES", TRIALS))
    with TemporaryDirectory() as folder:
        return [*at_scale(Path(folder), count)]


def at_scale(folder: Path, count: int) -> Iterator[Measurement]:
    """Measure a database of two published suites, a large one, and for the rest of `count` trials of a campaign."""
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/tables.db")
    settings.runs.mkdir()
    large = load_suite(str(large_suite(folder)))
    suites = [load_suite("quickstart"), load_suite("dropattention/table3"), large]
    choice = SuiteOptions(data=("trec-synthetic",))
    choices = {"quickstart": SuiteOptions(), "dropattention/table3": choice, large.name: SuiteOptions()}
    with open_store(settings.database) as store:
        for suite in suites:
            requested = request_suite(suite, choices[suite.name], settings)
            store.enqueue(requested.trials.values(), [requested.request])
        store.enqueue(campaign.trials(count - sum(store.counts().values())))
        rows = campaign.finish(store)
        of = f"{sum(store.counts().values()):,} trials, {rows:,} metric rows"
        for suite in suites:
            yield from of_suite(suite, settings, store, of)
        yield repeat_within(f"results --group-by regularizer,data; {of}", TABLE_SECONDS,
                            lambda: results(store, group_by=["regularizer", "data"]))  # fmt: skip
        yield repeat_within(f"compare dropout with dropkey on TREC; {of}", TABLE_SECONDS, lambda: compared(store))
        yield repeat_within(f"rank; {of}", TABLE_SECONDS, lambda: rank(store))
    for words, limit_s in (("report quickstart", TABLE_SECONDS), ("report quickstart --format html", PAGE_SECONDS)):
        call = campaign.command(settings, *words.split())
        yield repeat_within(f"dropbench {words}, the whole process", limit_s, call)


def of_suite(suite: Suite, settings: Settings, store: Store, of: str) -> Iterator[Measurement]:
    """Measure a suite's table as `dropbench report` prints it, its page, and the size of that page."""

    def view() -> View:
        return build_view(suite_table(store, suite.name), store, settings.runs)

    def table() -> str:
        return documents.as_markdown(view())

    def whole_page() -> str:
        return page(view(), store, settings.runs)

    trials = len(suite_table(store, suite.name).request.trials)
    called = suite.name.removeprefix(f"{settings.runs.parent}/")
    name = f"{called} ({trials:,} trials)"
    yield repeat_within(f"report {name}; {of}", TABLE_SECONDS, table)
    yield repeat_within(f"report {name} --format html; {of}", PAGE_SECONDS, whole_page)
    size = len(whole_page().encode())
    ratio = round(size / PAGE_BYTES, 3)
    yield Measurement(f"that page of {called}", "5 MB", ratio, 1.0, size, PAGE_BYTES, "bytes")


def compared(store: Store) -> object:
    """Run the query of `dropbench compare 'regularizer=dropout data=trec' 'regularizer=dropkey data=trec'`."""
    with reading(store.engine) as connection:
        sides = [(connection, [f"regularizer={name}", "data=trec"]) for name in ("dropout", "dropkey")]
        return compare(*read_sides(sides))


def large_suite(folder: Path) -> Path:
    """Write a suite of a baseline and `ROWS` − 1 ratios of a regularizer; return its file."""
    trial = {"task": "text-classification", "model": "text-transformer"}
    rows: list[dict[str, object]] = [{"label": "none", "baseline": True, "trial": {"regularizer": "none"}}]
    for number in range(1, ROWS):
        spec = {"regularizer": "dropkey", "params": {"ratio": number / ROWS, "window": 1}}
        rows.append({"label": f"DropKey {number / ROWS:.2f}", "trial": spec})
    content = {
        "title": "A large table", "source": "benchmarks", "metric": "accuracy", "trial": trial, "rows": rows,
        "columns": [{"label": name, "trial": {"data": f"{name}-synthetic"}} for name in COLUMNS],
        "presets": {"mini": {"seeds": SEEDS}},
    }  # fmt: skip
    file = folder / "large.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file
