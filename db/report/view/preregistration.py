"""Pre-registrations: what a suite will train and how it will be judged, written down before, and compared after.

A pre-registration is a small YAML file. Configuration ids stand for everything that determines a candidate's numbers
but the seed, so that no recipe has to be repeated in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.notes import params_text
from dropbench.db.report.view.requests import SuiteTable
from dropbench.db.store.store import Store
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import canonical_json, read_yaml
from dropbench.harness.validation import StrictModel, validated

TEST = "two-sided paired t-test by seed against the baseline, at 5 % after Holm's correction over the table"
"""The statistical test of suites' tables (`dropbench.db.report.view.view`)."""
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


def plan_of(table: SuiteTable) -> Plan:
    """Return the plan of a table, as it was requested; it depends on no result."""
    cells: dict[str, dict[str, dict[str, str]]] = {}
    requested = [cell.cell for cell in table.cells]
    for cell in table.cells:
        sweep = cell.selection.sweep if cell.selection is not None else None
        own = cells.setdefault(cell.cell.row, {}).setdefault(cell.cell.column, {})
        if sweep is not None and not sweep.is_grid:
            own["search"] = f"{canonical_json(sweep.search.model_dump(mode='json'))} in {sweep}" + (
                f" by seeds {', '.join(map(str, sweep.seeds))}" if sweep.seeds else ""
            )
        else:
            own |= {params_text(each.params) or DEFAULT: each.config for each in cell.cell.candidates}
    data = [text.partition(" ") for request in table.requests for text in request.conditions["data"].values()]
    versions = {item: text for request in table.requests for item, text in request.conditions["version"].items()}
    return Plan(
        suite=table.request.suite.name,
        preset=table.request.preset,
        seeds=requested[0].seeds,
        baseline=tuple(dict.fromkeys(cell.row for cell in requested if cell.baseline)),
        metrics={cell.column: cell.metric for cell in requested},
        data={name: fingerprint for name, _, fingerprint in data},
        result_versions={item: int(text) for item, text in sorted(versions.items()) if text != "1"},
        cells=cells,
    )


def freeze(table: SuiteTable, store: Store) -> str:
    """Return the pre-registration of a table as YAML; it reads no test score."""
    import yaml

    plan = plan_of(table)
    ids = [*dict.fromkeys(id for cell in table.cells for each in cell.cell.requested for id in each.trials)]
    done = [row.state for row in store.states(ids).values()].count("succeeded")
    content = Preregistration(
        frozen=utc_now_iso(),
        trained=f"{done} of {count_of(len(ids), 'trial')}",
        digest=plan.digest,
        plan=plan,
        chosen=_chosen(table.cells),
    )
    text = yaml.safe_dump(
        content.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=118, default_flow_style=None
    )
    return f"# Check a table against this file: dropbench report {plan.suite} --frozen FILE\n{text.rstrip()}"


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
        raise InputError(f"{file}: no such file: write it by `dropbench report SUITE --freeze {file}`") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected a file of `dropbench report --freeze`")
    frozen = validated(Preregistration, content, file)
    if frozen.plan.digest != frozen.digest:
        raise InputError(f"{file}: its plan has been edited since it was frozen: restore it, or freeze again")
    return frozen


def check(file: Path, table: SuiteTable) -> list[str]:
    """Return one line if a table and its chosen candidates are as frozen, or else also a line per difference.

    Raises:
        InputError: as `read_preregistration`.
    """
    frozen = read_preregistration(file)
    plan = plan_of(table)
    day = frozen.frozen[:10]
    differences = [*_plan_differences(frozen.plan, plan), *_choice_differences(frozen.chosen, _chosen(table.cells))]
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
