"""A small suite for tests, its trials, the results of these in a database, and its table as printed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from dropbench.db.report.formats.layout import fitting_grid
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.view import View, build
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.cli.table import draw_table
from dropbench.harness.cli.text_table import to_text
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.request import Request
from dropbench.harness.suites.suite import Suite, parse_suite
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import Candidates, make_request
from tests.db.records import done, make_trial

Values = dict[tuple[str, str], Sequence[Any]]
STATES = ("queued", "submitted", "running", "cancelled")

values: Values = {
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


def suite(columns: Sequence[str] = ("TREC", "MR"), title: str = "A table", label: str = "dropkey 0.3") -> Suite:
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


def write(suite: Suite, path: Path) -> None:
    """Write a suite to a user's file."""
    path.write_text(yaml.safe_dump(json.loads(suite.model_dump_json(exclude={"name"}))))


def resolve(suite: Suite, options: SuiteOptions | None = None) -> list[Given]:
    """Return the cells with the trials that a task would create."""
    cells = []
    for cell in suite.cells(options or SuiteOptions()):
        request = cell.request
        spec = RegularizerSpec(name=request.regularizer, params=request.params)
        rest: dict[str, Any] = {"regularizer": spec, "preset": request.preset, "overrides": request.overrides}
        cells.append(Given(cell, [make_trial(seed, data=request.data, **rest) for seed in cell.seeds]))
    return cells


def request(suite: Suite, cells: Sequence[Given], options: SuiteOptions | None = None) -> Request:
    """Return the request of cells."""
    pairs: list[tuple[Cell, Candidates]] = [(cell.cell, [({}, cell.trials)] if cell.trials else []) for cell in cells]
    return make_request(suite, options or SuiteOptions(preset=cells[0].cell.request.preset), pairs).request


def fill(store: Store, cells: Sequence[Given], values: Values) -> None:
    """Record a result per trial.

    A number: succeeded with it; None: succeeded without one; a state: that state; another text: failed with that
    reason; "": not recorded.
    """
    for cell in cells:
        for trial, value in zip(cell.trials, values.get((cell.cell.row, cell.cell.column), ("",) * 9), strict=False):
            if isinstance(value, str):
                if value in STATES:
                    store.record([RunRecord(trial, value)])  # type: ignore[arg-type]
                elif value:
                    store.record([RunRecord(trial, "failed", value)])
            else:
                store.record([done(trial, value)])


def view(
    store: Store,
    cells: Sequence[Given],
    of: Suite | None = None,
    metric: Metric | None = None,
    options: SuiteOptions | None = None,
) -> View:
    """Return the table of a metric, by default of the accuracy."""
    made = request(of or suite(), cells, options)
    update = {} if metric is None else {"measured": metric}
    shown = [cell.model_copy(update=update) for cell in made.cells]
    ids = [cell.candidates[0].trials if cell.candidates else () for cell in shown]
    return build(made, [CellTrials(cell, own) for cell, own in zip(shown, ids, strict=True)], store)


def filled(store: Store, values: Values = values, of: Suite | None = None, metric: Metric | None = None) -> View:
    """Record results of a suite's trials, and return its table."""
    cells = resolve(of or suite())
    fill(store, cells, values)
    return view(store, cells, of, metric)


def printed(view: View, width: int = 80) -> str:
    """Return the table as printed into a pipe of that width."""
    return to_text(fitting_grid(view, width), width) + "\n"


def drawn(view: View, width: int = 80) -> str:
    """Return the table as printed on a terminal of that width."""
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, force_terminal=True, color_system="standard")
    draw_table(fitting_grid(view, width), console)
    return file.getvalue()
