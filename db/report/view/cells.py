"""Cells of a table: their trials, the results of the seeds, and the numbers shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dropbench.db.schema.reference import Origin
from dropbench.db.tuning.select import Candidate, Selection
from dropbench.harness.suites.request import RequestedCell
from dropbench.harness.suites.search_space import Params
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import SYNTHETIC, TrialState


@dataclass(frozen=True)
class CellTrials:
    """A cell with its trials.

    Attributes:
        cell: the cell; of a swept one, with the values of the chosen candidate, if there is one.
        ids: ids of its trials in the database, one per seed; empty while no candidate is chosen.
        skipped: why its regularizer cannot work with the task or model.
        selection: for a swept cell.
        hidden: the scores of its trials must not be read yet (`dropbench.db.report.view.build.build_view`).
        origin: whose results the cell shows; a row has a cell of its own for each.
    """

    cell: RequestedCell
    ids: Sequence[str]
    skipped: str | None = None
    selection: Selection | None = None
    hidden: bool = False
    origin: Origin = "own"

    @property
    def row(self) -> str:
        """Label of its row."""
        return self.cell.row if self.origin == "own" else f"{self.cell.row} ({self.origin})"


@dataclass(frozen=True)
class SeedResult:
    """State and value of one seed; `value` is None without a finite number."""

    id: str
    seed: int
    state: TrialState | Literal["not run", "not analyzed", "left out"]
    reason: str | None
    value: float | None


@dataclass(frozen=True)
class CellResult:
    """A cell with the results in the database.

    Attributes:
        mean, std, n: over the seeds with a value; std is the sample standard deviation, None for n < 2.
        delta: difference from the baseline of the same column: the mean of the paired differences over the seeds that
            both have (`paired` counts them), or the difference of the means if they share none. None for the baseline.
        interval, p_value: 95 % confidence interval and p-value of `delta` by a paired t-test, or None.
        p_holm, p_bh: the p-value corrected for all differences of the table (Holm, Benjamini-Hochberg).
        no_interval: why there is no interval (`dropbench.db.statistics.t_test`); None if there is one, or no `delta`.
        published, published_std: the values printed in the source.
        result_versions: the result versions of its trials that are not 1 (`Trial.result_versions_text`).
        older_rule: whether one of these is older than the current one (`dropbench.db.queries.marks.is_older`).
        delta_published: mean − published; None on synthetic data, which the source did not use.
        best: its mean is the best of the column.
        selection: the candidates of a swept cell.
        hidden: its scores were not read, as candidates of the table are unfinished.
        origin: whose results these are.
        subset: notes, if its data are a subset of the published ones (`dropbench.db.report.view.build`).
    """

    cell: RequestedCell
    row: str
    metric: Metric
    fingerprint: str | None
    regularizer: Mapping[str, Any]
    schedule: str
    seeds: tuple[SeedResult, ...]
    mean: float | None = None
    std: float | None = None
    n: int = 0
    delta: float | None = None
    paired: int = 0
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    p_holm: float | None = None
    p_bh: float | None = None
    no_interval: str | None = None
    published: float | None = None
    published_std: float | None = None
    delta_published: float | None = None
    best: bool = False
    selection: Selection | None = None
    hidden: bool = False
    subset: tuple[str, ...] = ()
    result_versions: str | None = None
    older_rule: bool = False
    origin: Origin = "own"

    @property
    def chosen(self) -> Params | None:
        """Values selected for a swept cell; None until all of its candidates are done or lost."""
        chosen = self.selection.chosen if self.selection is not None else None
        return chosen.params if chosen is not None else None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Candidates of a swept cell."""
        return self.selection.candidates if self.selection is not None else ()

    @property
    def expected_dev(self) -> list[float] | None:
        """Expected dev score over the number of candidates (`Selection.expected_dev`)."""
        return self.selection.expected_dev if self.selection is not None else None

    @property
    def averaged(self) -> list[SeedResult]:
        """The seeds that are not left out."""
        return [seed for seed in self.seeds if seed.state != "left out"]

    @property
    def column(self) -> str:
        """Label of its column."""
        return self.cell.column

    @property
    def synthetic(self) -> bool:
        """True for generated data."""
        return self.cell.request.data.endswith(SYNTHETIC)
