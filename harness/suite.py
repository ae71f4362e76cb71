"""A suite: one table or figure of a source, as the grid of its trials, its layout and its published cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from harness.deviations import PAPER
from harness.errors import InputError, unknown_name
from harness.files import read_yaml
from harness.regularizers import REGULARIZERS
from harness.regularizers.spec import parse_spec
from harness.settings import Settings
from harness.sweep import BOUND, RECIPE, Params, Search, Space, Sweep, fitted, nearest, sweepable
from harness.table import Axis, Drawing, Preset, Row, Strict
from harness.task import outline_of
from harness.trial import Seed, Trial, TrialRequest
from harness.validation import input_error

SUITES = Path(__file__).parent / "suites"
FILES = (".yaml", ".yml")
WHAT = ("task", "model", "data", "weights")
"""Fields of a trial that say what is trained, apart from how it is regularised."""


class Suite(Strict):
    """One table or figure.

    Attributes:
        name: ``dropattention/table3``.
        title: what the table shows.
        source: document and number of the table, or where the suite comes from.
        metric: the metric of the cells, without its split.
        trial: fields of every trial (`harness.trial.TrialRequest`).
        sweep: what cells choose from by their dev score (`harness.table.Preset`); a row, then a preset may say
            otherwise.
        search: how that is searched.
        plugin_rows: whether each regularizer of a plug-in gets a row.
        figure: how it is drawn, where it stands for a figure of its source.
        notes: what the source leaves open, and how it is read here.
    """

    name: str
    title: str
    source: str
    metric: str
    trial: dict[str, Any]
    rows: list[Row]
    columns: list[Axis]
    presets: dict[str, Preset]
    sweep: Space | None = None
    search: Search | None = None
    plugin_rows: bool = False
    figure: Drawing | None = None
    notes: list[str] = Field(default_factory=list)

    def cells(self, choice: Choice) -> Iterator[Cell]:
        """The cells of the table that `choice` leaves, row by row.

        Raises:
            InputError: the choice names a preset, data set or model that this suite does not have, or a sweep names
                a parameter that no regularizer of it has.
        """
        if choice.preset not in self.presets:
            raise unknown_name(f"preset of {self.name}", choice.preset, self.presets)
        preset = self.presets[choice.preset]
        rows = list(self.rows)
        if self.plugin_rows:
            named = [name for name in REGULARIZERS if REGULARIZERS.entry(name).plugin is not None]
            rows += [row for name in named for row in self._added_rows(name)]
        rows += [row for text in choice.regularizers for row in self._added_rows(text)]
        wanted = {"data": choice.data or preset.data, "model": choice.models or None}
        seen: dict[str, set[str]] = {"data": set(), "model": set()}
        swept: set[str] = set()
        for row in rows:
            for position, column in enumerate(self.columns):
                fields = {**self.trial, **row.trial, **column.trial}
                if row.params and row.params[position]:
                    fields["params"] = {**fields.get("params", {}), **(row.params[position] or {})}
                base = {key: fields[key].removesuffix("-synthetic") for key in wanted}
                sweep = self._sweep(row, fields, choice)
                if sweep is not None:
                    swept.update(sweep.space)
                for key, name in base.items():
                    seen[key].add(name)
                if any(names is not None and not _named(names, base[key]) for key, names in wanted.items()):
                    continue
                fields["data"] = _choose(wanted["data"], fields["data"])
                fields["preset"] = choice.preset
                if choice.weights is not None:
                    fields["weights"] = choice.weights
                special = {**row.presets.get(choice.preset, {}), **column.presets.get(choice.preset, {})}
                fields["overrides"] = {
                    **preset.overrides,
                    **special,
                    **fields.get("overrides", {}),
                    **choice.overrides,
                }
                yield Cell(
                    suite=self.name,
                    row=row.label,
                    column=column.label,
                    metric=column.metric or self.metric,
                    baseline=row.baseline,
                    published=row.published[position] if row.published else None,
                    request=_request(fields, f"suite {self.name}"),
                    seeds=tuple(choice.seeds or range(preset.seeds)),
                    sweep=sweep,
                )
        self._check_swept(rows, choice, swept)
        for key, names in wanted.items():
            for name in names or ():
                if name.removesuffix("-synthetic") not in seen[key]:
                    raise unknown_name(f"{key} of {self.name}", name, seen[key])

    def published(self) -> list[Cell]:
        """The cells with a published number, whatever data a preset leaves out.

        What their requests override is what tells them from other cells; how a preset trains, and what may be swept, is
        left out.
        """
        rows = [row.model_copy(update={"presets": {}}) for row in self.rows]
        columns = [column.model_copy(update={"presets": {}}) for column in self.columns]
        plain = {"rows": rows, "columns": columns, "presets": {PAPER: Preset(seeds=1)}, "plugin_rows": False}
        cells = self.model_copy(update=plain).cells(Choice(preset=PAPER, sweep={}))
        return [cell for cell in cells if cell.published is not None]

    def _sweep(self, row: Row, fields: dict[str, Any], choice: Choice) -> Sweep | None:
        """What a cell of that row, whose trial has these fields, chooses from."""
        preset = self.presets[choice.preset]
        space = nearest(choice.sweep, row.sweep, preset.sweep, self.sweep)
        search = nearest(choice.search, row.search, preset.search, self.search)
        where = f"the sweep of row '{row.label}' of {self.name}"
        whole = choice.sweep is None and row.sweep is not None
        return fitted(space or {}, search or Search(), fields.get("regularizer", "none"), where, whole=whole)

    def _check_swept(self, rows: Sequence[Row], choice: Choice, swept: set[str]) -> None:
        """Raise InputError for a parameter that no row has, or a search where there is no sweep."""
        preset = self.presets[choice.preset]
        left = [key for key in nearest(choice.sweep, preset.sweep, self.sweep) or () if key not in swept]
        if left:
            named = [{**self.trial, **axis.trial}.get("regularizer", "none") for axis in (*rows, *self.columns)]
            known = {key for name in dict.fromkeys(named) for key in sweepable(name)}
            for key in left:
                if key not in known:
                    raise unknown_name(f"parameter of the regularizers of {self.name}", key, known)
        if choice.search is not None and not swept:
            raise InputError(f"--search: nothing of {self.name} is swept: expected --sweep KEY=VALUES as well")

    def _added_rows(self, text: str) -> list[Row]:
        """A row with that regularizer; one for each model and data set where the rows name these."""
        name, params = parse_spec(text)
        # A schedule and an alignment are written among the parameters, and are the trial's.
        bound = {key: params.pop(key) for key in ("schedule", "align") if key in params}
        named = dict.fromkeys(tuple((key, row.trial[key]) for key in WHAT if key in row.trial) for row in self.rows)
        return [
            Row(
                label=" + ".join([*(str(value) for _, value in fields), text]),
                trial={**dict(fields), "regularizer": name, "params": params, **bound},
            )
            for fields in named
        ]

    def trials(self, choice: Choice, settings: Settings) -> list[tuple[Cell, list[Trial]]]:
        """The cells with their trials, one a seed; of a grid those of all candidates, of a search none."""
        return [
            (cell, [trial for one in cell.known() for trial in one.trials(settings)]) for cell in self.cells(choice)
        ]


class Choice(Strict):
    """What of a suite is run or shown, from the command line.

    Attributes:
        preset: name of the preset.
        seeds: the seeds; empty: as many as the preset says, from 0.
        data: data names, "-synthetic" allowed behind; empty: the preset's, else all.
        models: model names; empty: all.
        regularizers: rows to add, as ``name:key=value,…``.
        overrides: recipe keys (``--set``).
        weights: path of every trial's initial weights.
        sweep: what cells choose from (``--sweep``), whatever suite, preset and rows say.
        search: how that is searched (``--search``).
    """

    preset: str = "mini"
    seeds: tuple[Seed, ...] = ()
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    regularizers: tuple[str, ...] = ()
    overrides: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    sweep: Space | None = None
    search: Search | None = None


class Cell(Strict):
    """One cell of a table: a configuration, a metric, the seeds, and what the source prints there.

    Attributes:
        request: its configuration; where it is swept, what its candidates have in common, and the values of suite and
            row for the rest.
        sweep: what it chooses from by its dev score; None: nothing.
        published: the value, or the value and its deviation; None where the source prints nothing.
    """

    suite: str
    row: str
    column: str
    metric: str
    baseline: bool
    published: float | tuple[float, float] | None
    request: TrialRequest
    seeds: tuple[Seed, ...]
    sweep: Sweep | None = None

    def known(self) -> list[Cell]:
        """The cells that are run for it, as far as that is known before any has run: itself, or its grid."""
        if self.sweep is None:
            return [self]
        return [self.at(params) for params in self.sweep.grid()] if self.sweep.is_grid else []

    def at(self, params: Params) -> Cell:
        """The candidate with these values: a cell whose trials are those that would be asked for without a sweep."""
        request = self.request
        fields: dict[str, Any] = {"params": dict(request.params), "overrides": dict(request.overrides)}
        for key, value in params.items():
            if key.startswith(RECIPE):
                fields["overrides"][key.removeprefix(RECIPE)] = value
            elif key in BOUND:
                fields[key] = str(value)
            else:
                fields["params"][key] = value
        return self.model_copy(update={"request": request.model_copy(update=fields), "sweep": None})

    def trials(self, settings: Settings) -> list[Trial]:
        """A trial for each seed; raises InputError for what does not fit together, or is not here."""
        first = self.request.model_copy(update={"seed": self.seeds[0]})
        trial = outline_of(first.task).trial_for(first, settings)
        # What is averaged over seeds differs in nothing else, and filling in the recipe takes a millisecond.
        return [trial, *(trial.model_copy(update={"seed": seed}) for seed in self.seeds[1:])]


@cache
def suite_names() -> tuple[str, ...]:
    """Names of the suites that come with DropBench, in order."""
    return tuple(sorted(str(file.relative_to(SUITES).with_suffix("")) for file in SUITES.rglob("*.yaml")))


def is_suite(name: str) -> bool:
    """Whether a name is that of a suite, or of a file that may be one."""
    return name.endswith(FILES) or name in suite_names()


def load_suite(name: str) -> Suite:
    """Read a suite by name, or from the path of a ``.yaml`` file of the user's.

    Raises:
        InputError: there is none of that name, or its file is wrong.
    """
    if not is_suite(name):
        raise unknown_name("suite", name, suite_names())
    file = Path(name) if name.endswith(FILES) else SUITES / f"{name}.yaml"
    try:
        content = read_yaml(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such suite file") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: no valid YAML: {' '.join(str(error).split())}") from None
    return parse_suite(content, name.removesuffix(".yaml").removesuffix(".yml"), str(file))


def parse_suite(content: Any, name: str, where: str) -> Suite:
    """Check the content of a suite file; raises InputError naming the key that is wrong."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected a mapping with title, source, metric, trial, rows, columns, presets")
    try:
        suite = Suite(name=name, **content)
    except ValidationError as error:
        raise input_error(error, where, f"key in {where}", Suite.model_fields) from None
    for row in suite.rows:
        for key, values in (("params", row.params), ("published", row.published)):
            if values is not None and len(values) != len(suite.columns):
                raise InputError(
                    f"{where}: row '{row.label}': {key} has {len(values)} entries, expected {len(suite.columns)}"
                )
    return suite


def _named(names: Sequence[str], base: str) -> bool:
    return any(name.removesuffix("-synthetic") == base for name in names)


def _choose(names: Sequence[str] | None, own: str) -> str:
    """The data set as the user wrote it, with "-synthetic" behind it or not; the suite's own where none was named."""
    return next(
        (name for name in names or () if name.removesuffix("-synthetic") == own.removesuffix("-synthetic")), own
    )


def _request(fields: dict[str, Any], where: str) -> TrialRequest:
    try:
        return TrialRequest(**fields)
    except ValidationError as error:
        raise input_error(error, where, f"field of a trial in {where}", TrialRequest.model_fields) from None
