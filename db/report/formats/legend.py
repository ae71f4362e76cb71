"""Notes of a table: why numbers are missing, and the legend below the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dropbench.db.report.formats.noise import Noise, noise_lines, significant
from dropbench.db.report.formats.numbers import SIGNIFICANT, format_metric
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.notes import lost_candidates, progress_text, recipe_lines, selection_lines
from dropbench.db.report.view.view import View, baselines
from dropbench.db.statistics.t_test import EQUAL, MIN_PAIRS, TOO_FEW
from dropbench.harness.errors import count_of
from dropbench.harness.models.catalog import MODELS


def incomplete(result: CellResult) -> str | None:
    """Return a note on the seeds without a number; None if there are none or their common state says enough."""
    if result.hidden and result.chosen is not None:
        return "hidden"
    if result.selection is not None and result.chosen is None:
        return "; ".join(filter(None, [progress_text(result.selection), lost_candidates(result.selection)]))
    groups: dict[tuple[str, str | None], list[int]] = {}
    for seed in result.seeds:
        if seed.value is None:
            reason = seed.reason
            if seed.state == "succeeded":
                reason = f"the run reported no finite {result.metric.name}"
            groups.setdefault((seed.state, reason), []).append(seed.seed)
    (state, reason), *others = groups or [("", None)]
    if result.n == 0 and not others and (reason is None or state == "skipped"):
        return reason  # the state is in the table
    parts = []
    for (state, reason), seeds in groups.items():
        numbers = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        parts.append(f"{numbers}: {state}" + (f": {reason}" if reason else ""))
    return "; ".join(parts)


def about(view: View, *, intervals: bool = True) -> list[str]:
    """Return the legend: source and meaning of the numbers, and how their recipes and data differ from the source."""
    results = list(view.cells.values())
    source = [f"source: {view.suite.source}"] if view.suite.source else []  # none without a suite
    lines = [*view.notices, *source, _meaning(results)]
    lines += _difference_lines(view, intervals)
    if any(result.published is not None for result in results):
        lines.append("published: value in the source; Δ: ours − published")
    lines += [*_floor_lines(view), *selection_lines(view), *recipe_lines(view), *_data_lines(results)]
    if view.versions:
        lines.append(f"trained with different versions: {view.versions}")
    if view.machines:
        lines.append(f"trained on {view.machines}: they add numbers in other orders, so that the last digits differ")
    lines += [*_dropout_lines(results), *view.outdated, *view.reference]
    if overrides := view.request.options.overrides:
        lines.append(f"recipe overridden: {', '.join(f'{key}={value}' for key, value in overrides.items())}")
    return lines


def _dropout_lines(results: Sequence[CellResult]) -> list[str]:
    """Return a line on the attention dropout that models bring along, if some may."""
    models = {result.cell.request.model for result in results}
    if not any(model in MODELS and MODELS.entry(model).facts.get("attention_dropout") for model in models):
        return []
    return [
        "the model's own attention dropout: regularizers that drop keys or change logits replace it; all others and"
        " 'none' keep it; 'no-attention-dropout' is without it"
    ]


def _meaning(results: Sequence[CellResult]) -> str:
    """Return the metrics of a table, and what its numbers are over."""
    metrics = dict.fromkeys(result.metric for result in results)
    names = (metric.name if metric.unit in ("", "count") else f"{metric.name} in {metric.unit}" for metric in metrics)
    seeds = sorted({seed.seed for result in results for seed in result.seeds})
    numbers = f" ({', '.join(map(str, seeds))})" if 0 < len(seeds) <= 10 else ""
    spread = f"mean ± sample standard deviation over n seeds{numbers}" if len(seeds) != 1 else f"seed {seeds[0]} alone"
    directed = any(metric.higher_is_better is not None for metric in metrics)
    return f"test {', '.join(names)}: {spread}{'; bold: best in its column' if directed else ''}"


def _difference_lines(view: View, intervals: bool) -> list[str]:
    """Return lines on the differences from the baseline, their tests, and what they can detect."""
    results = list(view.cells.values())
    base = list(dict.fromkeys(result.row for result in results if result.cell.baseline))
    if not base:
        return []
    baseline = f"'{base[0]}'" if len(base) == 1 else f"the nearest baseline above, such as '{base[0]}'"
    lines = [f"Δ base: difference from {baseline}, paired by seed"]
    reasons = {result.no_interval for result in results if result.delta is not None and intervals}
    if None in reasons:
        lines[-1] += "; [low, high]: 95 % confidence interval (paired t-test)"
    if TOO_FEW in reasons:
        lines.append(f"no confidence interval: row and baseline share fewer than {MIN_PAIRS} seeds")
    if EQUAL in reasons:
        lines.append(f"{EQUAL}: no confidence interval or p-value, as the difference is the same for all seeds")
    if tests := sum(result.p_value is not None for result in results):
        confirmed, differences = significant([result.p_holm for result in results]), count_of(tests, "difference")
        lines.append(
            f"{SIGNIFICANT}: significant at 5 % after Holm's correction for the {differences} of the table:"
            f" {confirmed}; after Benjamini-Hochberg's: {significant([result.p_bh for result in results])}"
        )
    return [*lines, *noise_lines(_noises(view), "the baseline")]


def _data_lines(results: Sequence[CellResult]) -> list[str]:
    """Return lines on data that are not the published sets."""
    lines = []
    if any(result.synthetic for result in results):
        lines.append("synthetic: generated data in the format of the real set; not comparable with published numbers")
    subsets = dict.fromkeys((result.cell.request.data, note) for result in results for note in result.subset)
    return [*lines, *(f"subset: {data}, {note}" for data, note in subsets)]


def _noises(view: View) -> list[Noise]:
    """Return the noise of the differences of a table."""
    noises = []
    for position, baseline in baselines(view).items():
        result = view.cells[position]
        if result.delta is not None:
            half_width = None if result.interval is None else (result.interval[1] - result.interval[0]) / 2
            text = partial(format_metric, metric=result.metric)
            noises.append(Noise(result.metric.name, baseline.std, half_width, result.paired, text))
    return noises


def _floor_lines(view: View) -> list[str]:
    """Return one line on the floors of each data set and metric, best predictor first, or that there is none."""
    metrics = {(result.cell.request.data, result.metric.name): result.metric for result in view.cells.values()}
    lines = []
    for key, values in view.floors.items():
        metric = metrics[key]
        order = sorted(values.items(), key=lambda item: item[1], reverse=metric.higher_is_better is not False)
        texts = (f"{format_metric(value, metric)} {name}" for name, value in order)
        lines.append(f"floor: {key[0]}, test {metric.name}: {', '.join(texts) or 'none for this task and metric'}")
    return lines
