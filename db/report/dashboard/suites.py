"""The tables of a suite that the database has trials of, as they were asked for: by preset and overrides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from db.connection import reading
from db.models import Configs, Memberships, Trials
from db.published import load_known
from db.report import choose
from db.report.subsets import with_subsets
from db.report.view import Asked, View, build
from db.rows import among
from db.store import Store
from harness.errors import InputError
from harness.files import canonical_json
from harness.regularizers import REGULARIZERS
from harness.settings import Settings
from harness.suite import Cell, Choice, Suite
from harness.sweep import RECIPE

SYNTHETIC = "-synthetic"


@dataclass
class Variant:
    """The trials of a suite that belong into one table.

    Attributes:
        key: names it in addresses.
        label: what sets it apart.
        preset: of all of them.
        overrides: recipe keys beyond those of the suite.
        cells: the configurations of each cell, as (row, column) → ids.
        trials: seeds and ids by configuration.
    """

    key: str
    label: str
    preset: str
    overrides: dict[str, Any]
    added: list[str] = field(default_factory=list)
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    trials: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def size(self) -> int:
        """How many trials it has."""
        return sum(map(len, self.trials.values()))


def variants(name: str, store: Store) -> tuple[Suite | None, list[Variant]]:
    """The suite, None where its file is not here, and its variants, the largest first."""
    trials: dict[str, list[tuple[int, str]]] = {}
    with reading(store.engine) as connection:
        query = (
            select(Trials.c.config_id, Trials.c.seed, Trials.c.id).join(Memberships).where(Memberships.c.suite == name)
        )
        for config_id, seed, id in connection.execute(query.order_by(Trials.c.seed)):
            trials.setdefault(config_id, []).append((seed, id))
        columns = [column for column in Configs.columns if column.name != "config"]
        configs = [
            dict(row)
            for row in connection.execute(select(*columns).where(among(connection, Configs.c.id, trials))).mappings()
        ]
    suite = load_known(name)
    if suite is None:
        return None, []
    found: dict[str, Variant] = {}
    asking = {preset: _Asking(all_cells(suite, preset)) for preset in suite.presets}
    for config in configs:
        preset = config["preset"]
        if preset not in suite.presets:
            continue
        fitting = asking[preset].fitting(config)
        known = fitting[0].request.overrides if fitting else suite.presets[preset].overrides
        swept = _swept(fitting[0]) if fitting else set()
        held = config["overrides"].items()
        extra = {key: value for key, value in held if key not in swept and known.get(key) != value}
        key = canonical_json([preset, extra])
        label = ", ".join([f"preset {preset}", *(f"{name}={value}" for name, value in extra.items())])
        variant = found.setdefault(key, Variant(key, label, preset, extra))
        variant.configs[config["id"]] = config
        variant.trials[config["id"]] = trials[config["id"]]
        if not fitting and config["regularizer"] in REGULARIZERS:
            variant.added.append(_spec(config))
    return suite, sorted(found.values(), key=lambda variant: (-variant.size(), variant.key))


def view_of(suite: Suite, variant: Variant, store: Store, settings: Settings) -> View:
    """The table of a variant.

    Raises:
        InputError: the suite has a task or a metric that is not known here, such as a plug-in's.
    """
    cells = all_cells(suite, variant.preset, tuple(dict.fromkeys(variant.added)), variant.overrides)
    of_cell: dict[tuple[str, str], list[str]] = {}
    asking = _Asking(cells)
    for id, config in variant.configs.items():
        for cell in asking.fitting(config):
            of_cell.setdefault((cell.row, cell.column), []).append(id)
    first = store.trials([its[0][1] for its in variant.trials.values()])
    by_config = {trial.config_id: trial for trial in first.values()}
    rows, columns = ({place[axis] for place in of_cell} for axis in (0, 1))
    asked = []
    for cell in cells:
        if cell.row not in rows or cell.column not in columns:
            continue
        # Of data in several versions, those with the most trials.
        ids = [id for id in of_cell.get((cell.row, cell.column), ()) if id in by_config]
        if not ids:
            asked.append(Asked(cell, (), "not asked for"))
            continue
        id = max(ids, key=lambda id: len(variant.trials[id]))
        trial = by_config[id]
        request = cell.request.model_copy(update={"data": trial.data.name})
        if cell.sweep is not None:
            swept = tuple(sorted({seed for one in ids for seed, _ in variant.trials[one]}))
            cell = cell.model_copy(update={"request": request, "seeds": swept})
            try:
                asked.append(choose(cell, settings, store))
            except InputError as error:
                asked.append(Asked(cell, (), str(error)))
            continue
        seeds = [trial.model_copy(update={"seed": seed}) for seed, _ in variant.trials[id]]
        asked.append(Asked(cell.model_copy(update={"request": request}), seeds))
    return with_subsets(build(suite, asked, store), settings.runs)


def all_cells(
    suite: Suite, preset: str, regularizers: tuple[str, ...] = (), overrides: Mapping[str, Any] | None = None
) -> list[Cell]:
    """The cells of a preset, on all data whatever it leaves out."""
    whole = suite.model_copy(update={"presets": {preset: suite.presets[preset].model_copy(update={"data": None})}})
    return list(whole.cells(Choice(preset=preset, regularizers=regularizers, overrides=dict(overrides or {}))))


class _Asking:
    """Cells by what they ask for: of thousands, those that ask for a configuration are found at once."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._names: dict[Hashable, set[tuple[str, ...]]] = {}
        self._cells: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            request = cell.request
            head = _head(request.task, request.model, request.data, request.regularizer, request.align)
            names = tuple(sorted(request.params.keys() - _swept(cell)))
            self._names.setdefault(head, set()).add(names)
            values = tuple(request.params[name] for name in names)
            self._cells.setdefault((head, names, values), []).append(cell)

    def fitting(self, config: Mapping[str, Any]) -> list[Cell]:
        """The cells that ask for a configuration: of all that would, those that say the most of it."""
        head = _head(*(config[key] for key in ("task", "model", "data", "regularizer", "align")))
        scores = [
            (_score(cell, config["overrides"]), cell)
            for names in self._names.get(head, ())
            for cell in self._cells.get((head, names, tuple(config["params"].get(name) for name in names)), ())
            if cell.request.regularizer == "none" or cell.request.schedule == config["schedule"]
        ]
        best = max((score for score, _ in scores), default=None)
        return [cell for score, cell in scores if score == best]


def _head(task: str, model: str, data: str, regularizer: str, align: str) -> Hashable:
    return task, model, data.removesuffix(SYNTHETIC), regularizer, align


def _swept(cell: Cell) -> set[str]:
    """What a cell asks for in many values: parameters, and recipe keys by their own names."""
    return {key.removeprefix(RECIPE) for key in cell.sweep.space} if cell.sweep is not None else set()


def _score(cell: Cell, held: Mapping[str, Any]) -> tuple[int, int]:
    """A cell with other overrides stands for a configuration, too, where none has these: it is another variant's."""
    said = [key for key in cell.request.overrides if key not in _swept(cell)]
    alike = sum(1 if held.get(key) == cell.request.overrides[key] else -1 for key in said)
    return len(cell.request.params.keys() - _swept(cell)), alike


def _spec(config: Mapping[str, Any]) -> str:
    """A configuration's regularizer as `--regularizer` takes it."""
    bound = {key: config[key] for key, usual in (("schedule", "constant"), ("align", "none")) if config[key] != usual}
    params = ",".join(f"{key}={value}" for key, value in {**config["params"], **bound}.items())
    return f"{config['regularizer']}:{params}" if params else str(config["regularizer"])
