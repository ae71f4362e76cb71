"""A suite's table as numbers: what each cell came to, beside its baseline and the published value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from harness.analysis import analysis_of
from harness.errors import unknown_name
from harness.suite import Cell, Suite
from harness.sweep import Params
from harness.task import Metric, outline_of
from harness.trial import Trial, TrialState

if TYPE_CHECKING:
    from db.selection import Candidate, Selection
    from db.store import Store

SYNTHETIC = "-synthetic"


@dataclass(frozen=True)
class Asked:
    """A cell with its trials, or, where they cannot be made here, the reason.

    Attributes:
        selection: of a swept cell; `cell` and `trials` are those of the candidate that was chosen, if any was.
    """

    cell: Cell
    trials: Sequence[Trial]
    reason: str | None = None
    selection: Selection | None = None


@dataclass(frozen=True)
class Seed:
    """What became of one seed; `value` is None where there is none, or no finite number."""

    id: str
    seed: int
    state: TrialState | Literal["not run", "not analyzed"]
    reason: str | None
    value: float | None


@dataclass(frozen=True)
class Outcome:
    """A cell as it stands.

    Attributes:
        mean, std, n: over the seeds that have a value; std is the sample's, None for n < 2.
        delta: to the baseline of the same column: the mean of the differences seed by seed where both have some seeds
            in common (`paired` says how many), else the difference of the means. None for the baseline itself.
        interval, p_value: of `delta`: its 95 % confidence interval and the p-value of a paired t-test; None with fewer
            than `db.statistics.ENOUGH` seeds in common.
        published, published_std: what the source prints.
        delta_published: mean − published; None on synthetic data, which the source did not measure on.
        best: the best mean of its column.
        reason: why there are no trials to look at.
        selection: what a swept cell chooses from.
        subset: in words, where its data are a part of those that were published (`db.report.subsets`).
    """

    cell: Cell
    row: str
    metric: Metric
    fingerprint: str | None
    regularizer: Mapping[str, Any]
    schedule: str
    seeds: tuple[Seed, ...]
    reason: str | None
    mean: float | None = None
    std: float | None = None
    n: int = 0
    delta: float | None = None
    paired: int = 0
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    published: float | None = None
    published_std: float | None = None
    delta_published: float | None = None
    best: bool = False
    selection: Selection | None = None
    subset: tuple[str, ...] = ()

    @property
    def chosen(self) -> Params | None:
        """Of a swept cell, the values that were chosen; None before all of its candidates have won or lost."""
        chosen = self.selection.chosen if self.selection is not None else None
        return chosen.params if chosen is not None else None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Of a swept cell, what it chooses from."""
        return self.selection.candidates if self.selection is not None else ()

    @property
    def column(self) -> str:
        """The label of its column."""
        return self.cell.column

    @property
    def synthetic(self) -> bool:
        """Whether its data were generated."""
        return self.cell.request.data.endswith(SYNTHETIC)


@dataclass(frozen=True)
class View:
    """A suite's table: its rows and columns by label, and the cells that the choice left."""

    suite: Suite
    preset: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Outcome]

    def column(self, label: str) -> list[Outcome]:
        """The cells of a column, from the top."""
        return [self.cells[row, label] for row in self.rows if (row, label) in self.cells]


def metric_of(cell: Cell) -> Metric:
    """The cell's metric, with its direction and unit, from its task or of an analysis.

    What an analysis has measured of a task's metric under a condition (``occlusion/accuracy@0.3``) is that metric.

    Raises:
        InputError: neither has such a metric.
    """
    metrics = {metric.name: metric for metric in outline_of(cell.request.task).metrics}
    kind = analysis_of(cell.metric)
    if kind is not None:
        measured = cell.metric.removeprefix(f"{kind}/").partition("@")[0]
        return metrics.get(measured) or Metric(kind, higher_is_better=None, unit="")
    if cell.metric not in metrics:
        raise unknown_name(f"metric of {cell.request.task}", cell.metric, metrics)
    return metrics[cell.metric]


def build(suite: Suite, asked: Sequence[Asked], store: Store, metric: Callable[[Cell], Metric] = metric_of) -> View:
    """Look up the trials of each cell."""
    from db.query import final_values

    ids = [trial.id for one in asked for trial in one.trials]
    states = store.states(ids)
    values = {name: final_values(store, ids, name) for name in {one.cell.metric for one in asked}}
    cells: dict[tuple[str, str], Outcome] = {}
    for one in asked:
        seeds = []
        for trial in one.trials:
            row = states.get(trial.id)
            value = values[one.cell.metric].get(trial.id) if row and row.state == "succeeded" else None
            seed = Seed(trial.id, trial.seed, row.state if row else "not run", row.reason if row else None, value)
            if seed.state == "succeeded" and trial.id not in values[one.cell.metric] and analysis_of(one.cell.metric):
                seed = replace(seed, state="not analyzed", reason=f"dropbench analyze {suite.name}")
            seeds.append(seed)
        label = _free(cells, one)
        if label is not None:
            cells[label, one.cell.column] = _summarized(one, label, metric(one.cell), tuple(seeds))
    view = View(
        suite,
        asked[0].cell.request.preset if asked else "mini",
        tuple(dict.fromkeys(row for row, _ in cells)),
        tuple(dict.fromkeys(column for _, column in cells)),
        cells,
    )
    compared = dict(_compared(view))
    return replace(view, cells={place: compared[place] for place in cells})


def _free(cells: Mapping[tuple[str, str], Outcome], one: Asked) -> str | None:
    """The row's label, numbered where another row has the same; None where that one is the very same cell."""
    label, number = one.cell.row, 1
    ids = [trial.id for trial in one.trials]
    while (present := cells.get((label, one.cell.column))) is not None:
        if [seed.id for seed in present.seeds] == ids and (ids or present.cell.request == one.cell.request):
            return None
        number += 1
        label = f"{one.cell.row} ({number})"
    return label


def _summarized(one: Asked, row: str, metric: Metric, seeds: tuple[Seed, ...]) -> Outcome:
    from db.query import summarize

    summary = summarize(seed.value for seed in seeds)
    published = one.cell.published
    value, std = published if isinstance(published, tuple) else (published, None)
    trial = one.trials[0] if one.trials else None
    request = one.cell.request
    outcome = Outcome(
        cell=one.cell,
        row=row,
        metric=metric,
        fingerprint=trial.data.fingerprint if trial else None,
        regularizer=trial.regularizer.params if trial else request.params,
        schedule=trial.schedule if trial else request.schedule,
        seeds=seeds,
        reason=one.reason,
        mean=summary.mean,
        std=summary.std,
        n=summary.n,
        published=value,
        published_std=std,
        selection=one.selection,
    )
    if value is None or summary.mean is None or outcome.synthetic:
        return outcome
    return replace(outcome, delta_published=summary.mean - value)


def _compared(view: View) -> list[tuple[tuple[str, str], Outcome]]:
    """The cells with their deltas, and the best of each column."""
    compared = []
    for column in view.columns:
        cells = view.column(column)
        means = [cell.mean for cell in cells if cell.mean is not None]
        higher = cells[0].metric.higher_is_better
        # One result alone is not the best of anything, and some metrics have no better or worse.
        best = (max if higher else min)(means) if len(means) > 1 and higher is not None else None
        baseline = next((cell for cell in cells if cell.cell.baseline), None)
        for cell in cells:
            if cell.cell.baseline:
                baseline = cell  # the nearest one above, where a table has several
            found = replace(cell, best=best is not None and cell.mean == best)
            compared.append(((cell.row, column), _against(found, baseline)))
    return compared


def _against(cell: Outcome, baseline: Outcome | None) -> Outcome:
    """The cell with its difference to the baseline."""
    from db.statistics import paired

    if baseline is None or cell.cell is baseline.cell or cell.mean is None or baseline.mean is None:
        return cell
    other = {seed.seed: seed.value for seed in baseline.seeds if seed.value is not None}
    pairs = [seed.value - other[seed.seed] for seed in cell.seeds if seed.value is not None and seed.seed in other]
    if not pairs:
        return replace(cell, delta=cell.mean - baseline.mean)
    found = paired(pairs)
    interval = (found.low, found.high) if found.low is not None and found.high is not None else None
    return replace(cell, delta=found.mean, paired=found.n, interval=interval, p_value=found.p)
