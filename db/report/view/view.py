"""The table of a suite as numbers: each cell next to its baseline and the published value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from dropbench.db.queries.blocks import is_of_regularizer
from dropbench.db.queries.marks import (
    all_versions,
    differing_versions,
    is_older,
    libraries_differ,
    libraries_of,
    machine_text,
    outdated_notes,
)
from dropbench.db.queries.results import final_values
from dropbench.db.report.view.cells import CellResult, CellTrials, SeedResult
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import ORIGINS
from dropbench.db.statistics.corrections import benjamini_hochberg, holm
from dropbench.db.statistics.seeds import equal, summarize
from dropbench.db.statistics.t_test import paired_t_test
from dropbench.db.store.store import Store, TrialRow
from dropbench.harness.suites.request import Heading, Request
from dropbench.harness.trials.trial import SYNTHETIC, Trial

Floors = Mapping[tuple[str, str], Mapping[str, float]]
"""Scores of simple predictors on test: (data, metric) → predictor → value."""


@dataclass(frozen=True)
class View:
    """The table of a suite: labels of rows and columns, the selected cells, and library versions if they differ.

    `floors` has the scores that trained models have to beat, if they were computed.

    A cell's mean is over trials that were trained with the same versions. The others are ``left out``. `outdated` has a
    note for each result version of the trials that is not the current one. `notices` are lines on unfinished candidates
    and on a pre-registration. `reference` describes the reference results, if the table has any, and `machines` those
    that trained it, if there are several.
    """

    request: Request
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], CellResult]
    versions: str | None = None
    outdated: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    floors: Floors = field(default_factory=dict)
    reference: tuple[str, ...] = ()
    machines: str | None = None

    @property
    def suite(self) -> Heading:
        """The suite's name, title, source, notes and figure."""
        return self.request.suite

    @property
    def preset(self) -> str:
        """Name of the preset."""
        return self.request.preset

    def column(self, label: str) -> list[CellResult]:
        """Return the cells of a column from top to bottom."""
        return [self.cells[row, label] for row in self.rows if (row, label) in self.cells]


def build(request: Request, cells: Sequence[CellTrials], store: Store) -> View:
    """Return the view of a request's cells, with the results of their trials from the database."""
    ids = [id for cell in cells for id in cell.ids]
    states = store.states(ids)
    with reading(store.engine) as connection:
        libraries = libraries_of(connection, ids) if libraries_differ(connection) else {}
        trained_on = machine_text(connection, ids)
    frequency = Counter(libraries.values())
    readable = [id for cell in cells if not cell.hidden for id in cell.ids]
    values = {name: final_values(store, readable, name) for name in {cell.cell.metric for cell in cells}}
    trials = store.trials([cell.ids[0] for cell in cells if cell.ids])
    results: dict[tuple[str, str], CellResult] = {}
    for cell in cells:
        seeds = _seeds(cell, states, values[cell.cell.metric], request.suite.name)
        # Of several versions, the most frequent of the table, so that its cells agree.
        kept = max((libraries.get(id, "") for id in cell.ids), key=lambda text: (frequency[text], text), default="")
        seeds = [
            replace(seed, state="left out", reason=f"trained with {libraries[seed.id]}", value=None)
            if libraries.get(seed.id, kept) != kept and seed.state != "not analyzed"
            else seed
            for seed in seeds
        ]
        if cell.hidden and {seed.state for seed in seeds} != {"skipped"}:
            seeds = []
        trial = trials.get(cell.ids[0]) if cell.ids else None
        results[cell.row, cell.cell.column] = _cell_result(cell, trial, tuple(seeds))
    rows, columns = (tuple(dict.fromkeys(position[axis] for position in results)) for axis in (0, 1))
    outdated = outdated_notes(trials.values())
    return _compared(
        View(request, rows, columns, results, differing_versions(frequency), outdated, machines=trained_on)
    )


def _seeds(
    cell: CellTrials, states: Mapping[str, TrialRow], values: Mapping[str, float | None], suite: str
) -> list[SeedResult]:
    """Return the states and values of a cell's seeds."""
    if not cell.ids and cell.selection is None:  # of a suite without a request
        return [SeedResult("", seed, "not run", None, None) for seed in cell.cell.seeds]
    seeds = []
    for id, seed in zip(cell.ids, cell.cell.seeds, strict=False):
        row = states.get(id)
        if row is None:
            seeds.append(SeedResult(id, seed, "skipped" if cell.skipped else "not run", cell.skipped, None))
        elif row.state == "succeeded" and id not in values and cell.cell.analysis:
            seeds.append(SeedResult(id, seed, "not analyzed", f"run `dropbench analyze {suite}`", None))
        else:
            value = values.get(id) if row.state == "succeeded" else None
            seeds.append(SeedResult(id, seed, row.state, row.reason, value))
    return seeds


def _cell_result(cell: CellTrials, trial: Trial | None, seeds: tuple[SeedResult, ...]) -> CellResult:
    summary = summarize(seed.value for seed in seeds)
    published = cell.cell.published
    value, std = published if isinstance(published, tuple) else (published, None)
    request = cell.cell.request
    delta = summary.mean - value if summary.mean is not None and value is not None else None
    return CellResult(
        cell=cell.cell,
        row=cell.row,
        metric=cell.cell.measured,
        fingerprint=trial.data.fingerprint if trial else None,
        regularizer=trial.regularizer.params if trial else request.params,
        schedule=trial.schedule if trial else request.schedule,
        result_versions=trial.result_versions_text if trial else None,
        older_rule=trial is not None
        and is_older(trial.task, trial.model, trial.regularizer.name, trial.result_versions_text),
        seeds=seeds,
        **asdict(summary),
        published=value,
        published_std=std,
        delta_published=None if request.data.endswith(SYNTHETIC) else delta,
        selection=cell.selection,
        hidden=cell.hidden and not seeds,
        origin=cell.origin,
    )


def baselines(view: View) -> dict[tuple[str, str], CellResult]:
    """Return the baseline of each cell: the nearest one above it in its column, or else the first below it.

    Baselines of the same origin take precedence.
    """
    baseline_of: dict[tuple[str, str], CellResult] = {}
    for column in view.columns:
        cells = view.column(column)
        groups = [cells, *([cell for cell in cells if cell.origin == origin] for origin in ORIGINS)]
        for group in groups:
            baseline = next((cell for cell in group if cell.cell.baseline), None)
            for cell in group:
                if cell.cell.baseline:
                    baseline = cell
                elif baseline is not None:
                    baseline_of[cell.row, column] = baseline
    return baseline_of


def _compared(view: View) -> View:
    """Return the view with the differences from the baselines, and the best of each column marked."""
    baseline_of = baselines(view)
    best_of = {column: _best_mean(view.column(column)) for column in view.columns}
    cells = {}
    for position, cell in view.cells.items():
        highest = best_of[cell.column]
        best = cell.mean is not None and highest is not None and equal(cell.mean, highest)
        cells[position] = _with_delta(replace(cell, best=best), baseline_of.get(position))
    p_values = [cell.p_value for cell in cells.values()]
    corrected = zip(cells.items(), holm(p_values), benjamini_hochberg(p_values), strict=True)
    cells = {position: replace(cell, p_holm=p_holm, p_bh=p_bh) for (position, cell), p_holm, p_bh in corrected}
    return replace(view, cells=cells)


def _best_mean(cells: Sequence[CellResult]) -> float | None:
    """Return the best mean; None for a single result, or if cells or metric cannot be compared."""
    cells = [cell for cell in cells if cell.mean is not None]
    means = [cell.mean for cell in cells if cell.mean is not None]
    higher = cells[0].metric.higher_is_better if cells and comparable(*cells) else None
    return (max if higher else min)(means) if len(means) > 1 and higher is not None else None


def comparable(*cells: CellResult) -> bool:
    """Return whether cells were trained with the same result versions of everything but the regularizer."""
    versions: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        request = cell.cell.request
        own = all_versions(request.task, request.model, request.regularizer, cell.result_versions)
        for item, version in own.items():
            versions[item].add(version)
    return all(len(own) < 2 for item, own in versions.items() if not is_of_regularizer(item))


def _with_delta(cell: CellResult, baseline: CellResult | None) -> CellResult:
    if baseline is None or cell.mean is None or baseline.mean is None or not comparable(cell, baseline):
        return cell
    test = paired_t_test(pairs(cell, baseline))
    delta = cell.mean - baseline.mean if test.mean is None else test.mean
    interval = (test.low, test.high) if test.low is not None and test.high is not None else None
    return replace(cell, delta=delta, paired=test.n, interval=interval, p_value=test.p, no_interval=test.no_interval)


def pairs(cell: CellResult, baseline: CellResult) -> list[tuple[float, float]]:
    """Return the values of the seeds that a cell and its baseline share."""
    other = {seed.seed: seed.value for seed in baseline.seeds if seed.value is not None}
    return [(seed.value, other[seed.seed]) for seed in cell.seeds if seed.value is not None and seed.seed in other]
