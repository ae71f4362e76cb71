"""Make requests: the cells of a suite, or of one configuration, with the trials that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dropbench.harness.analysis import analysis_of
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.regularizers.spec import parse_spec, spec_label
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.request import Heading, Request, RequestedCandidate, RequestedCell, digest
from dropbench.harness.suites.schema import Axis
from dropbench.harness.suites.search_space import RECIPE_PREFIX, Params
from dropbench.harness.trials.metric import Metric, MetricName
from dropbench.harness.trials.recipe import ResolvedRecipe
from dropbench.harness.trials.recipe_diff import PAPER, Change, changes
from dropbench.harness.trials.result_versions import current_versions
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import SYNTHETIC, Trial, TrialRequest
from dropbench.harness.validation import validated

if TYPE_CHECKING:
    from dropbench.harness.suites.suite import Suite

Candidates = Sequence[tuple[Params, Sequence[Trial]]]
"""The values of a cell's candidates, and their trials, one per seed."""


@dataclass(frozen=True)
class Requested:
    """A request, and its trials by id as far as they are known."""

    request: Request
    trials: Mapping[str, Trial]

    def with_reasons(self, unsuitable: Mapping[str, str]) -> Requested:
        """Return it with the reasons why configurations are skipped, by their ids."""
        if not unsuitable:
            return self
        cells = []
        for cell in self.request.cells:
            candidates = tuple(
                candidate.model_copy(update={"skipped": unsuitable.get(candidate.config)})
                for candidate in cell.candidates
            )
            cells.append(cell.model_copy(update={"candidates": candidates}))
        return replace(self, request=self.request.model_copy(update={"cells": tuple(cells)}))


def request_suite(suite: Suite, options: SuiteOptions, settings: Settings) -> Requested:
    """Return the request of a part of a suite; of a search, without candidates.

    Raises:
        InputError: the suite does not have what the options name, fields do not fit together, or data are missing.
    """
    cells = [(cell, _candidates(cell, settings)) for cell in list(suite.cells(options))]
    pairs = {(cell.request.task, cell.request.data) for cell, _ in cells}
    selected_by = {pair: next(iter(_own_metrics(*pair, settings)), None) for pair in pairs}
    return make_request(suite, options, cells, selected_by)


def _own_metrics(task: str, data: str, settings: Settings) -> list[Metric]:
    """Return the metrics of a data set, the first of which selects the weights instead of the task's first."""
    from dropbench.tasks.data.locate import locate

    try:
        names = locate(data, settings.data, settings.folders).dataset.metrics
    except InputError:  # data that only the task of a plug-in knows, or whose absence the cell shows itself
        return []
    metrics = {metric.name: metric for metric in spec_of(task).metrics}
    return [metrics[name] for name in names if name in metrics]


def request_configuration(task: str | None, options: SuiteOptions, settings: Settings) -> Requested:
    """Return the request of one task, data set and model without a suite: a row for each regularizer.

    With several, the first is the baseline, and a column is a metric: those of the data, and the task's first.

    Raises:
        InputError: an option is missing or given twice, fields do not fit together, or data are missing.
    """
    wanted = {"--task": (task,) if task else (), "--data": options.data, "--model": options.models}
    if missing := [option for option, values in wanted.items() if not values]:
        raise InputError(f"nothing to run: pass a SUITE (`dropbench list suites`), or {', '.join(missing)} as well")
    for option, values in wanted.items():
        if len(values) > 1:
            raise InputError(f"{option} {values[1]}: expected once without a SUITE: run each, or write a suite")
    (task,), (data,), (model,) = wanted.values()
    specs = [parse_spec(regularizer) for regularizer in dict.fromkeys(options.regularizers or ("none",))]
    requests = [
        validated(TrialRequest, {
            "task": task, "data": data, "model": model, "regularizer": spec.name, "params": spec.params,
            "schedule": spec.schedule or "constant", "align": spec.align or "none",
            **options.model_dump(include={"preset", "overrides", "weights"}),
        }, "trial")
        for spec in specs
    ]  # fmt: skip
    metrics = tuple(spec_of(requests[0].task).metrics)
    own_metrics = _own_metrics(requests[0].task, data, settings)
    by_name = {metric.name: metric for metric in (*own_metrics, metrics[0])}
    columns = by_name if len(specs) > 1 else {f"{model} on {data}": metrics[0]}
    cells, trials = list[RequestedCell](), dict[str, Trial]()
    for spec, request in zip(specs, requests, strict=True):
        own: list[Trial] = []
        for column, metric in columns.items():
            cell = Cell(
                suite="", row=spec_label(spec.name, spec.params), column=column, metric=metric.name,
                baseline=spec is specs[0] and len(specs) > 1, published=None, request=request,
                seeds=options.seeds or (0,),
            )  # fmt: skip
            own = own or cell.trials(settings)
            requested = _requested_cell(cell, [({}, own)], None)
            cells.append(requested.model_copy(update={"selected_by": next(iter(own_metrics), None)}))
        trials |= {trial.id: trial for trial in own}
    _require_read(options, trials.values())
    made = Request(
        suite=Heading(title=requests[0].task if len(specs) == 1 else f"{model} on {data}"),
        preset=options.preset,
        options=options,
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        columns=tuple(columns),
        metrics={requests[0].task: metrics},
        cells=tuple(cells),
    )
    return Requested(made, trials)


def published_request(suite: Suite, preset: str) -> Request:
    """Return the table of a suite without trials: its published values; raises InputError for an unknown preset."""
    options = SuiteOptions(preset=preset)
    return make_request(suite, options, [(cell, []) for cell in suite.cells(options)]).request


def candidate_of(params: Params, trials: Sequence[Trial]) -> RequestedCandidate:
    """Return a candidate with these values and trials."""
    return RequestedCandidate(
        params=dict(params), config=trials[0].config_id, trials=tuple(trial.id for trial in trials)
    )


def metric_of(cell: Cell) -> Metric:
    """Return the cell's metric with its direction and unit, from its task or an analysis.

    The metric of a task that an analysis measured under a condition (``occlusion/accuracy@0.3``) is that metric.

    Raises:
        InputError: neither defines the metric.
    """
    metrics = {metric.name: metric for metric in spec_of(cell.request.task).metrics}
    kind = analysis_of(cell.metric)
    if kind is not None:
        return metrics.get(MetricName.parse(cell.metric).metric) or Metric(kind, higher_is_better=None, unit="")
    if cell.metric not in metrics:
        raise unknown_name(f"metric of {cell.request.task}", cell.metric, metrics)
    return metrics[cell.metric]


def _candidates(cell: Cell, settings: Settings) -> Candidates:
    if cell.sweep is None:
        return [({}, cell.trials(settings))]
    points = cell.sweep.grid() if cell.sweep.is_grid else ()
    return [(params, cell.candidate(params).trials(settings)) for params in points]


def make_request(
    suite: Suite,
    options: SuiteOptions,
    cells: Sequence[tuple[Cell, Candidates]],
    own_metrics: Mapping[tuple[str, str], Metric | None] = MappingProxyType({}),
) -> Requested:
    """Return the request of some cells of a suite with their candidates; errors as in `request_suite`.

    `own_metrics`: by task and data, the metric of the data that selects the weights instead of the task's first.
    """
    cells = list(_distinct(cells))
    trials = {trial.id: trial for _, candidates in cells for _, own in candidates for trial in own}
    if all(candidates for _, candidates in cells):
        _require_read(options, trials.values())
    has_paper = PAPER in suite.presets
    published = suite.cells(SuiteOptions(preset=PAPER)) if has_paper else ()
    recipes = {(cell.row, cell.column): cell.request for cell in published}
    tasks = dict.fromkeys(cell.request.task for cell, _ in cells)
    request = Request(
        suite=Heading(**{key: getattr(suite, key) for key in Heading.model_fields}),
        preset=options.preset,
        tuned=bool(suite.presets[options.preset].tuned),
        has_paper=has_paper,
        options=options,
        rows=tuple(dict.fromkeys([*(row.label for row in suite.rows), *(cell.row for cell, _ in cells)])),
        columns=tuple(column.label for column in suite.columns),
        metrics={task: tuple(spec_of(task).metrics) for task in tasks},
        conditions=_conditions(suite, options, [cell for cell, _ in cells], trials.values()),
        cells=tuple(
            _requested_cell(cell, own, recipes.get((cell.row, cell.column))).model_copy(
                update={"selected_by": own_metrics.get((cell.request.task, cell.request.data))}
            )
            for cell, own in cells
        ),
    )
    return Requested(request, trials)


def _require_read(options: SuiteOptions, trials: Collection[Trial]) -> None:
    """Raise InputError for a recipe key that the user sets or sweeps, and none of the trials reads."""
    swept = (key.removeprefix(RECIPE_PREFIX) for key in options.sweep or () if key.startswith(RECIPE_PREFIX))
    read = {key for trial in trials for key in trial.overrides}
    for key in (*options.overrides, *swept):
        if trials and key not in read:
            raise InputError(f"recipe: {key}: no trial of this request reads it: remove it")


def _distinct(cells: Iterable[tuple[Cell, Candidates]]) -> Iterator[tuple[Cell, Candidates]]:
    """Yield cells with different labels: that of an added row is numbered, and a row of equal trials is left out."""
    seen: dict[tuple[str, str], list[Trial]] = {}
    for cell, candidates in cells:
        own = [trial for _, trials in candidates for trial in trials]
        row, number = cell.row, 1
        while (row, cell.column) in seen and seen[row, cell.column] != own:
            number += 1
            row = f"{cell.row} ({number})"
        if (row, cell.column) not in seen:
            seen[row, cell.column] = own
            yield cell.model_copy(update={"row": row}), candidates


def _requested_cell(cell: Cell, candidates: Candidates, published: TrialRequest | None) -> RequestedCell:
    """Return a cell with its candidates, and how their recipes differ from the one of a published request."""
    theirs = _resolved(published) if published is not None else None
    differing = _changes(cell.request, theirs)
    return RequestedCell(
        **dict(cell),
        measured=metric_of(cell),
        analysis=analysis_of(cell.metric),
        candidates=tuple(
            candidate_of(params, trials).model_copy(
                update={"changes": _changes(cell.with_params(params).request, theirs) if params else None}
            )
            for params, trials in candidates
        ),
        remaining=cell.sweep.size if cell.sweep is not None and not candidates else 0,
        changes=differing,
        deviations=theirs.notes if theirs is not None and differing is not None else (),
    )


def _resolved(request: TrialRequest) -> ResolvedRecipe | None:
    try:
        return spec_of(request.task).resolved(request)
    except InputError:  # the cell shows the reason itself
        return None


def _changes(request: TrialRequest, published: ResolvedRecipe | None) -> tuple[Change, ...] | None:
    ours = _resolved(request) if published is not None else None
    return tuple(changes(ours.recipe, published.recipe)) if ours is not None and published is not None else None


def _conditions(
    suite: Suite, options: SuiteOptions, cells: Sequence[Cell], trials: Iterable[Trial]
) -> dict[str, dict[str, str]]:
    """Return what determines how the trials are trained, apart from what the options select."""
    preset = suite.presets[options.preset].model_dump(mode="json", exclude={"seeds", "data"})
    trials = [*trials]
    typed = {key: value for trial in trials for key, value in trial.overrides.items()}
    found: dict[str, dict[str, str]] = {
        "option": {
            "set": ", ".join(f"{key}={typed.get(key, value)}" for key, value in options.overrides.items()),
            "weights": options.weights or "",
            "sweep": digest(options.model_dump(mode="json", include={"sweep"})) if options.sweep is not None else "",
            "search": digest(options.model_dump(mode="json", include={"search"})) if options.search else "",
        },
        "suite": {"trial": digest(suite.trial), f"preset {options.preset}": digest(preset)},
        "row": {row.label: _axis(row, options.preset) for row in suite.rows},
        "column": {column.label: _axis(column, options.preset) for column in suite.columns},
        "recipe": {},
        "data": {},
        "weights": {},
        "version": {},
        "plug-in": {},
    }
    for cell in cells:
        parts = spec_of(cell.request.task).recipe_parts(cell.request)
        found["recipe"] |= {name: digest(part) for name, part in parts.items()}
    for trial in {trial.config_id: trial for trial in trials}.values():
        found["data"][trial.data.name.removesuffix(SYNTHETIC)] = f"{trial.data.name} {trial.data.fingerprint}"
        found["version"] |= {item: str(trial.result_versions.get(item, 1)) for item in current_versions(trial)}
        found["plug-in"] |= trial.plugins
        if trial.weights is not None:
            found["weights"][trial.weights.path] = trial.weights.digest
    return found


def _axis(axis: Axis, preset: str) -> str:
    """Return a digest of what a row or column sets for the trials of a preset."""
    content: dict[str, Any] = axis.model_dump(mode="json", exclude={"label", "baseline", "published", "presets"})
    return digest({**content, "presets": axis.presets.get(preset, {})})
