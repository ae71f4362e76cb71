"""Requests that name given trials, and tables of requests."""

from __future__ import annotations

from typing import Any

from dropbench.db.report.view.requests import RequestTable, SuiteTable, resolve
from dropbench.db.store.store import Store
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.request import Heading, Request, RequestedCandidate, RequestedCell
from dropbench.harness.suites.suite import Suite
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.jobs.queue.request import Requested, request_suite


def named(suite: str, *trials: Trial, published: float | tuple[float, float] | None = None) -> Request:
    """Return a request of a suite that names trials, with a row for each, and with the same published value."""
    cells = tuple(_cell(suite, trial, published) for trial in {trial.id: trial for trial in trials}.values())
    return Request(
        suite=Heading(name=suite, title="A suite", source="these tests"),
        preset=trials[0].preset,
        options=SuiteOptions(),
        rows=tuple(cell.row for cell in cells),
        columns=("all",),
        cells=cells,
    )


def _cell(suite: str, trial: Trial, published: float | tuple[float, float] | None) -> RequestedCell:
    return RequestedCell(
        suite=suite,
        row=trial.id,
        column="all",
        metric="accuracy",
        measured=Metric("accuracy"),
        baseline=False,
        published=published,
        request=TrialRequest(task=trial.task, data=trial.data.name, model=trial.model, preset=trial.preset),
        seeds=(trial.seed,),
        candidates=(RequestedCandidate(config=trial.config_id, trials=(trial.id,)),),
    )


def grid_cells(cell: Cell) -> list[Cell]:
    """Return the cells that are known before any result: this cell, or one per candidate of its grid."""
    if cell.sweep is None:
        return [cell]
    return [cell.with_params(params) for params in cell.sweep.grid()] if cell.sweep.is_grid else []


def requested(suite: str, *trials: Trial) -> Requested:
    """Return the same with the trials; `suite` is "" for a request without one."""
    return Requested(named(suite, *trials), {trial.id: trial for trial in trials})


def table_of(suite: Suite, store: Store, options: SuiteOptions | None = None, **fields: Any) -> SuiteTable:
    """Return the table of a suite's request, which is not stored."""
    request = request_suite(suite, options or SuiteOptions(**fields), Settings()).request
    return SuiteTable((request,), resolve(RequestTable((request,)), store))
