"""A suite: one table or figure of a source, as a grid of trials with its layout and its published cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import read_yaml
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import build_regularizer, parameters, parse_spec
from dropbench.harness.suites.budget import budget_of
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.schema import Axis, FigureSpec, Preset, Row, TrialFields
from dropbench.harness.suites.search_space import Search, Space, Sweep, first_set, sweep_for, sweepable_keys
from dropbench.harness.suites.tuning import TUNING_SEED, tuned_sweep, with_known_values
from dropbench.harness.trials.recipe import override
from dropbench.harness.trials.recipe_diff import PAPER
from dropbench.harness.trials.trial import SYNTHETIC, TrialRequest
from dropbench.harness.validation import FiniteModel, located, validated

SUITES = Path(__file__).parent
SUFFIXES = (".yaml", ".yml")
BASE_FIELDS = ("task", "model", "data", "weights")
"""Fields of a trial that define what is trained, apart from its regularization."""
MAX_TRIALS = 1_000_000  # of a suite, counted before any is created


class Suite(FiniteModel, strict=True):
    """One table or figure.

    Attributes:
        name: ``dropattention/table3``.
        title: the subject of the table.
        source: document and number of the table, or the origin of the suite.
        metric: the metric of the cells, without its split.
        trial: fields of every trial (`dropbench.harness.trials.trial.TrialRequest`).
        sweep: the search space of the cells (`dropbench.harness.suites.schema.Preset`); that of a row, then that of a
            preset takes precedence.
        search: how the space is searched.
        plugin_rows: whether each regularizer of a plug-in gets a row.
        card_rows: whether rows take what they do not set from the card of their regularizer, and each of DropBench's
            other regularizers gets a row.
        figure: how the table is drawn, if the suite reproduces a figure.
        notes: details that the source leaves open, and how the suite resolves them.
    """

    name: str
    title: str
    source: str
    metric: str
    trial: TrialFields
    rows: list[Row] = Field(min_length=1)
    columns: list[Axis] = Field(min_length=1)
    presets: dict[str, Preset]
    sweep: Space | None = None
    search: Search | None = None
    plugin_rows: bool = False
    card_rows: bool = False
    figure: FigureSpec | None = None
    notes: list[str] = Field(default_factory=list)

    def cells(self, options: SuiteOptions) -> Iterator[Cell]:
        """Yield the cells of the table that `options` selects, row by row.

        Raises:
            InputError: the suite does not have the preset, data set or model, none of its regularizers has a swept
                parameter, or there are more than `MAX_TRIALS` trials.
        """
        if options.preset not in self.presets:
            raise unknown_name(f"preset of {self.name}", options.preset, self.presets)
        preset, where = self.presets[options.preset], f"suite {self.name}"
        rows = list(self.rows)
        if self.plugin_rows:
            plugins = [name for name in REGULARIZERS if REGULARIZERS.entry(name).plugin is not None]
            for name, _ in REGULARIZERS.working(plugins, build_regularizer):
                rows += self._added_rows(name)
        rows += [row for text in options.regularizers for row in self._added_rows(text)]
        selected = {"data": _by_base_name(options.data or preset.data), "model": _by_base_name(options.models or None)}
        present: dict[str, set[str]] = {"data": set(), "model": set()}
        swept: set[str] = set()
        trials = 0
        for row in rows:
            for index, column in enumerate(self.columns):
                fields = {**self.trial, **row.trial, **column.trial}
                if row.params and row.params[index]:
                    fields["params"] = {**fields.get("params", {}), **(row.params[index] or {})}
                base = {key: fields[key].removesuffix(SYNTHETIC) for key in selected}
                sweep = self._sweep(row, fields, options)
                if sweep is not None:
                    swept.update(sweep.space)
                for key, name in base.items():
                    present[key].add(name)
                if any(names is not None and base[key] not in names for key, names in selected.items()):
                    continue
                fields["data"] = (selected["data"] or {}).get(base["data"], fields["data"])
                fields["preset"] = options.preset
                if weights := first_set(options.weights, fields.get("weights"), preset.weights):
                    fields["weights"] = weights
                presets = (row.presets.get(options.preset, {}), column.presets.get(options.preset, {}))
                overrides: dict[str, Any] = {}
                for layer in (preset.overrides, *presets, fields.get("overrides", {}), options.overrides):
                    override(overrides, layer)
                fields["overrides"] = overrides
                request = validated(TrialRequest, fields, where, f"field of a trial in {where}")
                if preset.tuned and first_set(options.sweep, row.sweep) is None:
                    given = {} if row in self.rows else row.trial.get("params", {})
                    search, staged = first_set(options.search, row.search) or Search(), preset.tuned == "staged"
                    sweep = tuned_sweep(request, given, search, where, staged=staged)
                elif sweep is not None and sweep.search.sampler == "staged":
                    sweep = with_known_values(sweep, request)
                seeds = tuple(options.seeds or range(preset.seeds))
                if sweep is not None and preset.tuning_seeds:
                    own = range(TUNING_SEED, TUNING_SEED + preset.tuning_seeds)
                    sweep = sweep.model_copy(update={"seeds": (*own,)})
                cell = Cell(
                    suite=self.name,
                    row=row.label,
                    column=column.label,
                    metric=column.metric or self.metric,
                    baseline=row.baseline,
                    published=row.published[index] if row.published else None,
                    request=request,
                    seeds=seeds,
                    sweep=sweep,
                )
                trials += budget_of(cell).trials
                if trials > MAX_TRIALS:
                    raise InputError(f"{where}: more than {MAX_TRIALS:,} trials: request fewer seeds or candidates")
                yield cell
        self._check_swept(rows, options, swept)
        for key, names in selected.items():
            for base_name, name in (names or {}).items():
                if base_name not in present[key]:
                    raise unknown_name(f"{key} of {self.name}", name, present[key])

    def published(self) -> list[Cell]:
        """Return the cells with a published number, including data that a preset leaves out.

        The overrides of their requests distinguish a cell from others, so those of presets, and sweeps, are left out.
        """
        rows = [row.model_copy(update={"presets": {}}) for row in self.rows]
        columns = [column.model_copy(update={"presets": {}}) for column in self.columns]
        plain = {"rows": rows, "columns": columns, "presets": {PAPER: Preset(seeds=1)}, "plugin_rows": False}
        cells = self.model_copy(update=plain).cells(SuiteOptions(preset=PAPER, sweep={}))
        return [cell for cell in cells if cell.published is not None]

    def _sweep(self, row: Row, fields: dict[str, Any], options: SuiteOptions) -> Sweep | None:
        """Return the sweep of a cell of `row` whose trial has `fields`."""
        preset = self.presets[options.preset]
        space = first_set(options.sweep, row.sweep, preset.sweep, None if preset.tuned else self.sweep)
        search = first_set(options.search, row.search, preset.search, self.search)
        where = f"the sweep of row '{row.label}' of {self.name}"
        strict = options.sweep is None and row.sweep is not None
        return sweep_for(fields.get("regularizer", "none"), space or {}, search or Search(), where, strict=strict)

    def _check_swept(self, rows: Sequence[Row], options: SuiteOptions, swept: set[str]) -> None:
        """Raise InputError for a parameter that no row has, or for search options without a sweep."""
        preset = self.presets[options.preset]
        unused = [key for key in first_set(options.sweep, preset.sweep, self.sweep) or () if key not in swept]
        if unused:
            names = [{**self.trial, **axis.trial}.get("regularizer", "none") for axis in (*rows, *self.columns)]
            keys = {key for name in dict.fromkeys(names) for key in sweepable_keys(name)}
            for key in unused:
                if key not in keys:
                    raise unknown_name(f"parameter of the regularizers of {self.name}", key, keys)
        if options.search is not None and not swept:
            raise InputError(f"--search: {self.name} has no sweep: add `--sweep KEY=VALUES`")

    def _added_rows(self, text: str) -> list[Row]:
        """Return a row with a regularizer; one per model and data set if the rows of the suite name these."""
        spec = parse_spec(text)
        trial_keys = {key: value for key, value in (("schedule", spec.schedule), ("align", spec.align)) if value}
        bases = dict.fromkeys(
            tuple((key, row.trial[key]) for key in BASE_FIELDS if key in row.trial) for row in self.rows
        )
        return [
            Row(
                label=" + ".join([*(str(value) for _, value in fields), text]),
                trial={**dict(fields), "regularizer": spec.name, "params": spec.params, **trial_keys},
            )
            for fields in bases
        ]


@cache
def suite_names() -> tuple[str, ...]:
    """Return the sorted names of the suites that come with DropBench."""
    return tuple(sorted(str(file.relative_to(SUITES).with_suffix("")) for file in SUITES.rglob("*.yaml")))


def name_of(suite: str) -> str:
    """Return the name of a suite that a user names, or whose YAML file."""
    return suite.removesuffix(".yaml").removesuffix(".yml")


def is_suite(name: str) -> bool:
    """Return whether a name is a suite's, or the path of a YAML file."""
    return name.endswith(SUFFIXES) or name in suite_names()


def load_suite(name: str) -> Suite:
    """Read a suite by name, or a user's YAML file by its path; raise InputError if it does not exist or is invalid."""
    if not is_suite(name):
        raise unknown_name("suite", name, suite_names())
    file = Path(name) if name.endswith(SUFFIXES) else SUITES / f"{name}.yaml"
    try:
        content = read_yaml(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such suite file") from None
    return parse_suite(content, name_of(name), file)


def parse_suite(content: Any, name: str, where: str | Path) -> Suite:
    """Validate the content of a suite file; raises InputError with the wrong key, and its line if `where` is a path."""

    def error(message: str, *keys: int | str) -> InputError:
        return InputError(f"{located(where, keys)}: {message}")

    if not isinstance(content, dict):
        raise error("expected a mapping with title, source, metric, trial, rows, columns, presets")
    if "name" in content:
        raise error("name: a suite is named after its file: remove this key", "name")
    suite = validated(Suite, {**content, "name": name}, where)
    for keys, metric in (
        (("metric",), suite.metric),
        *((("columns", index, "metric"), column.metric or "") for index, column in enumerate(suite.columns)),
    ):
        if metric.startswith(("train/", "dev/", "test/")):
            raise error(f"metric: {metric}: tables show the test set: write `{metric.partition('/')[2]}`", *keys)
    over = suite.figure.over if suite.figure and suite.figure.kind == "curves" else None
    for index, row in enumerate(suite.rows):
        for key, values in (("params", row.params), ("published", row.published)):
            if values is not None and len(values) != len(suite.columns):
                counts = f"{key} has {len(values)} entries, expected {len(suite.columns)}"
                raise error(f"row '{row.label}': {counts}", "rows", index, key)
        for column in suite.columns:
            fields = {**suite.trial, **row.trial, **column.trial}
            if no := ", ".join(key for key in ("task", "data", "model") if key not in fields):
                raise error(f"row '{row.label}', column '{column.label}': no {no} in trial", "rows", index)
            regularizer = fields.get("regularizer", "none")
            if ":" in regularizer:
                raise error(_as_fields(regularizer), "rows", index)
            if over and regularizer in REGULARIZERS and over not in (parameters(regularizer) or [over]):
                raise error(f"figure.over: {regularizer} has no parameter {over}", "figure", "over")
    if suite.card_rows:
        from dropbench.harness.suites.card_rows import with_card_rows

        suite = suite.model_copy(update={"rows": with_card_rows(suite.rows)})
    for kind, axes in (("rows", suite.rows), ("columns", suite.columns)):
        labels = [axis.label for axis in axes]
        for label in {label for label in labels if labels.count(label) > 1}:
            raise error(f"{kind}: a second label '{label}'", kind, labels.index(label, labels.index(label) + 1))
    return suite


def _as_fields(regularizer: str) -> str:
    """Return how a regularizer with parameters, as on the command line, is written in a suite."""
    spec = parse_spec(regularizer)
    params = ", ".join(f"{key}: {value}" for key, value in spec.params.items())
    fields = {"params": f"{{{params}}}" if params else "", "schedule": spec.schedule, "align": spec.align}
    written = ", ".join([f"regularizer: {spec.name}", *(f"{key}: {value}" for key, value in fields.items() if value)])
    return f"regularizer {regularizer}: its parameters are fields of their own: write `{{{written}}}`"


def _by_base_name(names: Sequence[str] | None) -> dict[str, str] | None:
    """Return data sets or models as the user wrote them by their names without the suffix of synthetic data."""
    return None if names is None else {name.removesuffix(SYNTHETIC): name for name in reversed(names)}
