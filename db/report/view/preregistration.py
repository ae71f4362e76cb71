"""Pre-registrations: what a suite will train and how it will be judged, written down before, and compared after.

A pre-registration is a small YAML file. Configuration ids stand for everything that determines a candidate's numbers
but the seed, so that no recipe has to be repeated in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from db.queries.recorded import RecordedTrials, trials_of
from db.report.view.cells import CellTrials
from db.report.view.notes import params_text
from db.store.store import Store
from harness.clock import utc_now_iso
from harness.errors import InputError, count_of
from harness.files import canonical_json, read_yaml
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.suite import Suite
from harness.trials.trial import Trial
from harness.validation import StrictModel, validated

TEST = "two-sided paired t-test by seed against the baseline, at 5 % after Holm's correction over the table"
"""The statistical test of suites' tables (`db.report.view.view`)."""
DEFAULT = "as in the suite"
"""Name of the only candidate of a cell without a sweep."""
LABELS = {"metrics": "columns and metrics", "result_versions": "result versions"}
MAX_NAMED = 10
"""Candidates with other trials that a difference names; the others are counted."""

Texts = dict[str, dict[str, str]]
"""Texts by row and column."""


class Plan(StrictModel):
    """Trials to be trained, and how they are compared.

    Attributes:
        baseline: rows that the others are compared with.
        metrics: the metric of each column; all are measured on test.
        choice: how a cell chooses among its candidates.
        test: the statistical test.
        data: fingerprints by data name.
        result_versions: those of all trials that are not 1.
        cells: row → column → candidate → configuration id; for a search that samples its candidates, the search.
    """

    suite: str
    preset: str
    seeds: tuple[int, ...]
    baseline: tuple[str, ...]
    metrics: dict[str, str]
    choice: str = "best mean dev score over the seeds"
    test: str = TEST
    data: dict[str, str]
    result_versions: dict[str, int]
    cells: dict[str, dict[str, dict[str, str]]]

    @property
    def digest(self) -> str:
        """SHA-256 of the plan."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json")).encode()).hexdigest()


class Preregistration(StrictModel):
    """The content of a file.

    Attributes:
        frozen: the time, ISO 8601 in UTC.
        trained: trials that were done by then.
        digest: of `plan`.
        chosen: the candidates that were chosen by then.
    """

    frozen: str
    trained: str
    digest: str
    plan: Plan
    chosen: Texts


def plan_of(suite: Suite, options: SuiteOptions, settings: Settings, store: Store) -> tuple[Plan, list[Trial]]:
    """Return the plan of a suite and all of its known trials; it depends on no result.

    Raises:
        InputError: a cell's trials cannot be created on this machine.
    """
    cells: dict[str, dict[str, dict[str, str]]] = {}
    trials: list[Trial] = []
    requested = list(suite.cells(options))
    recorded = RecordedTrials(store)
    for cell in requested:
        own = cells.setdefault(cell.row, {}).setdefault(cell.column, {})
        if cell.sweep is not None and not cell.sweep.is_grid:
            own["search"] = f"{canonical_json(cell.sweep.search.model_dump(mode='json'))} in {cell.sweep}"
        for name, candidate in _candidates(cell):
            (of_candidate,) = trials_of([candidate], settings, recorded)
            trials += of_candidate
            own[name] = of_candidate[0].config_id
    versions = {item: version for trial in trials for item, version in trial.result_versions.items()}
    plan = Plan(
        suite=suite.name,
        preset=options.preset,
        seeds=requested[0].seeds,
        baseline=tuple(dict.fromkeys(cell.row for cell in requested if cell.baseline)),
        metrics={cell.column: cell.metric for cell in requested},
        data={trial.data.name: trial.data.fingerprint for trial in trials},
        result_versions=dict(sorted(versions.items())),
        cells=cells,
    )
    return plan, trials


def _candidates(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """Yield the candidates that are known before any result, each with its values as a name."""
    if cell.sweep is None:
        yield DEFAULT, cell
    elif cell.sweep.is_grid:
        for params in cell.sweep.grid():
            yield params_text(params), cell.with_params(params)


def freeze(
    suite: Suite,
    options: SuiteOptions,
    cells: Sequence[CellTrials],
    settings: Settings,
    store: Store,
    *,
    as_json: bool = False,
) -> str:
    """Return the pre-registration of a suite as YAML, or JSON; it reads no test score. Raises as `plan_of`."""
    import yaml

    plan, trials = plan_of(suite, options, settings, store)
    ids = [*dict.fromkeys(trial.id for trial in trials)]
    done = [row.state for row in store.states(ids).values()].count("succeeded")
    content = Preregistration(
        frozen=utc_now_iso(),
        trained=f"{done} of {count_of(len(ids), 'trial')}",
        digest=plan.digest,
        plan=plan,
        chosen=_chosen(cells),
    )
    if as_json:
        return content.model_dump_json(indent=1)
    text = yaml.safe_dump(
        content.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=118, default_flow_style=None
    )
    return f"# Check a table against this file: dropbench report {suite.name} … --frozen FILE\n{text.rstrip()}"


def _chosen(cells: Sequence[CellTrials]) -> Texts:
    texts: Texts = {}
    for cell in cells:
        if cell.selection is not None and (chosen := cell.selection.chosen) is not None:
            texts.setdefault(cell.cell.row, {})[cell.cell.column] = params_text(chosen.params)
    return texts


def read_preregistration(file: Path) -> Preregistration:
    """Read a file; raise InputError if it does not exist, is no pre-registration, or was edited."""
    try:
        content = read_yaml(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file: write it by `dropbench freeze SUITE -o {file}`") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected a file of `dropbench freeze`")
    frozen = validated(Preregistration, content, file)
    if frozen.plan.digest != frozen.digest:
        raise InputError(f"{file}: its plan has been edited since it was frozen: restore it, or freeze again")
    return frozen


def check(
    file: Path, suite: Suite, options: SuiteOptions, cells: Sequence[CellTrials], settings: Settings, store: Store
) -> list[str]:
    """Return one line if a suite and its chosen candidates are as frozen, or else also a line per difference.

    Raises:
        InputError: as `read_preregistration` and `plan_of`.
    """
    frozen = read_preregistration(file)
    plan, _ = plan_of(suite, options, settings, store)
    day = frozen.frozen[:10]
    differences = [*_plan_differences(frozen.plan, plan), *_choice_differences(frozen.chosen, _chosen(cells))]
    if differences:
        return [f"not as frozen on {day}:", *(f"- {difference}" for difference in differences)]
    return [f"as frozen on {day}, when {frozen.trained} were done (digest {frozen.digest[:12]})"]


def _plan_differences(then: Plan, now: Plan) -> Iterator[str]:
    for name in ("suite", "preset", "seeds", "baseline", "metrics", "choice", "test", "data", "result_versions"):
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            label = LABELS.get(name, name)
            yield f"{label}: {_text(after)}; frozen: {_text(before)}"
    old, new = _flat(then), _flat(now)
    both = {key[:2] for key in old} & {key[:2] for key in new}
    columns = then.metrics.keys() & now.metrics.keys()  # the line on metrics names the others
    for word, some, others in (("added", new, old), ("missing", old, new)):
        keys = [key for key in some if key not in others]
        cells = dict.fromkeys(", ".join(key[:2]) for key in keys if key[:2] not in both and key[1] in columns)
        if cells:
            yield f"cells {word}: {'; '.join(cells)}"
        candidates = [", ".join(key[:2]) + f": {key[2]}" for key in keys if key[:2] in both]
        if candidates:
            yield f"candidates {word}: {'; '.join(candidates)}"
    changed = [", ".join(key[:2]) + f": {key[2]}" for key, id in old.items() if new.get(key, id) != id]
    if changed:
        names = "; ".join(changed[:MAX_NAMED]) + f"; and {len(changed) - MAX_NAMED} more" * (len(changed) > MAX_NAMED)
        yield f"other trials, as their recipe, model, data, versions or plug-ins differ: {names}"


def _flat(plan: Plan) -> dict[tuple[str, str, str], str]:
    return {
        (row, column, name): id
        for row, columns in plan.cells.items()
        for column, candidates in columns.items()
        for name, id in candidates.items()
    }


def _choice_differences(then: Texts, now: Texts) -> Iterator[str]:
    for row, columns in then.items():
        for column, before in columns.items():
            after = now.get(row, {}).get(column)
            if after != before:
                yield f"chosen for {row}, {column}: {after or 'nothing yet'}; frozen: {before}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
