"""Tables of the suites in the database, one per preset, overrides and initial weights that were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from db.queries.blocks import condition_versions
from db.queries.declarations import load_known
from db.queries.recorded import RecordedTrials
from db.report.view.build import build_view, resolve_cell
from db.report.view.cells import CellTrials
from db.report.view.view import View
from db.schema.connection import reading
from db.schema.tables import Configs, Memberships, Trials
from db.store.rows import in_list
from db.store.store import Store
from harness.errors import InputError
from harness.files import canonical_json
from harness.regularizers import REGULARIZERS
from harness.regularizers.spec import complete_spec, part_names, spec_label
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.search_space import RECIPE_PREFIX
from harness.suites.suite import SYNTHETIC, Suite


@dataclass
class Variant:
    """Trials of a suite that belong to one table.

    Attributes:
        key: identifies the variant in addresses.
        label: preset and overrides.
        preset: preset of all trials.
        overrides: recipe keys overridden beyond those of the suite.
        weights: path of initial weights that the suite does not name.
        added: regularizers that are not in the suite, as arguments of `--regularizer`, by configuration.
        configs: columns of the table `configs` by id.
        trials: seeds and ids by configuration.
    """

    key: str
    label: str
    preset: str
    overrides: dict[str, Any]
    weights: str | None = None
    added: dict[str, str] = field(default_factory=dict)
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    trials: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


def variants(name: str, store: Store) -> tuple[Suite | None, list[Variant]]:
    """Return the suite, or None if its file is missing, and its variants from the largest to the smallest."""
    suite = load_known(name)
    return suite, variants_of(suite, store) if suite is not None else []


def variants_of(suite: Suite, store: Store) -> list[Variant]:
    """Return the variants of a suite that have trials in the database, from the largest to the smallest."""
    trials: dict[str, list[tuple[int, str]]] = {}
    weights_of: dict[str, str | None] = {}
    query = select(*Trials.c["config_id", "seed", "id", "weights"]).join(Memberships)
    query = query.where(Memberships.c.suite == suite.name)
    columns = select(*(column for column in Configs.columns if column.name != "config"))
    with reading(store.engine) as connection:
        for config_id, seed, id, weights in connection.execute(query.order_by(Trials.c.seed)):
            weights_of[config_id] = weights
            trials.setdefault(config_id, []).append((seed, id))
        rows = connection.execute(columns.where(in_list(connection, Configs.c.id, trials))).mappings()
        configs = [dict(row) for row in rows]
    variant_of: dict[str, Variant] = {}
    versions: Counter[tuple[str, str]] = Counter()
    for config in configs:
        versions[config["data"].removesuffix(SYNTHETIC), config["fingerprint"]] += len(trials[config["id"]])
    requested = {config["preset"] for config in configs} & suite.presets.keys()
    indices = {preset: _CellIndex(_all_cells(suite, preset)) for preset in requested}
    ages = _ages(configs)
    for config in configs:
        preset = config["preset"]
        if preset not in indices:
            continue
        cells = indices[preset].matching(config)
        declared = cells[0].request.overrides if cells else suite.presets[preset].overrides
        swept = _swept(cells[0]) if cells else set()
        overrides = config["overrides"].items()
        extra = {key: value for key, value in overrides if key not in swept and declared.get(key) != value}
        base = config["data"].removesuffix(SYNTHETIC)
        own = [fingerprint for (data, fingerprint), _ in versions.most_common() if data == base]
        version = own.index(config["fingerprint"])  # other data are another table
        weights = weights_of[config["id"]]
        if weights is not None and cells and cells[0].request.weights is not None:
            weights = None  # those of the suite
        # As are earlier result versions with the same model and data. A regularizer's cells have its latest.
        age = ages[_trained(config)].index(condition_versions(config["result_versions"]))
        parts = [preset, extra, *filter(None, [version, weights, {"age": age} if age else None])]
        key = canonical_json(parts)
        label = ", ".join([f"preset {preset}", *(f"{name}={value}" for name, value in extra.items())])
        label += f", data version {version + 1}" * bool(version) + f", weights={weights}" * bool(weights)
        label += ", earlier result versions" * bool(age) + f" ({age})" * (age > 1)
        variant = variant_of.setdefault(key, Variant(key, label, preset, extra, weights))
        variant.configs[config["id"]] = config
        variant.trials[config["id"]] = trials[config["id"]]
        if not cells and all(part in REGULARIZERS for part in part_names(config["regularizer"])):
            variant.added[config["id"]] = _spec(config)
    return sorted(variant_of.values(), key=lambda item: (-sum(map(len, item.trials.values())), item.key))


def _trained(config: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what a configuration trains on what, apart from its regularizer."""
    return config["task"], config["data"], config["model"]


def _ages(configs: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str | None]]:
    """Return the result versions under which a model was trained on data, as texts, the latest first."""
    found: dict[tuple[str, str, str], set[str | None]] = {}
    for config in configs:
        found.setdefault(_trained(config), set()).add(condition_versions(config["result_versions"]))
    return {key: sorted(own, key=_total, reverse=True) for key, own in found.items()}


def _total(versions: str | None) -> tuple[int, str]:
    """Return the sum of versions, and their text for those with equal sums."""
    texts = versions.split(", ") if versions else []
    return sum(int(text.rpartition(" ")[2]) - 1 for text in texts), versions or ""


def view_of(suite: Suite, variant: Variant, store: Store, settings: Settings) -> View:
    """Return the table of a variant; raise InputError if a task or metric, such as a plug-in's, is not registered."""
    added = tuple(dict.fromkeys(variant.added.values()))
    cells = _all_cells(suite, variant.preset, regularizers=added, overrides=variant.overrides)
    configs_of: dict[tuple[str, str], list[str]] = {}
    index = _CellIndex(cells)
    for id, config in variant.configs.items():
        for cell in index.matching(config):
            configs_of.setdefault((cell.row, cell.column), []).append(id)
    first = store.trials([trials[0][1] for trials in variant.trials.values()])
    trial_of = {trial.config_id: trial for trial in first.values()}
    rows, columns = ({position[axis] for position in configs_of} for axis in (0, 1))
    resolved = []
    recorded = RecordedTrials(store)
    for cell in cells:
        if cell.row not in rows or cell.column not in columns:
            continue
        ids = [id for id in configs_of.get((cell.row, cell.column), ()) if id in trial_of]
        if not ids:
            resolved.append(CellTrials(cell, (), "not requested"))
            continue
        # The latest result versions; if there are several initial weights or plug-ins, those with the most trials.
        id = max(ids, key=lambda id: (_total(trial_of[id].result_versions_text)[0], len(variant.trials[id])))
        trial = trial_of[id]
        update: dict[str, Any] = {"request": cell.request.model_copy(update={"data": trial.data.name})}
        if cell.sweep is None:
            trials = [trial.model_copy(update={"seed": seed}) for seed, _ in variant.trials[id]]
            resolved.append(CellTrials(cell.model_copy(update=update), trials))
            continue
        update["seeds"] = tuple(sorted({seed for config_id in ids for seed, _ in variant.trials[config_id]}))
        cell = cell.model_copy(update=update)
        try:
            resolved.append(resolve_cell(cell, settings, store, recorded))
        except InputError as error:
            resolved.append(CellTrials(cell, (), str(error)))
    return build_view(suite, resolved, store, settings)


def _all_cells(suite: Suite, preset: str, **options: Any) -> list[Cell]:
    """Return the cells of a preset on all data, including data that the preset leaves out."""
    presets = {preset: suite.presets[preset].model_copy(update={"data": None})}
    return list(suite.model_copy(update={"presets": presets}).cells(SuiteOptions(preset=preset, **options)))


class _CellIndex:
    """Index of cells by their requests, to look up the cells of a configuration without a scan of thousands."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._cells: dict[Hashable, dict[tuple[str, ...], dict[Hashable, list[Cell]]]] = {}
        for cell in cells:
            request = cell.request
            head = _head(request.task, request.model, request.data, request.regularizer, request.align)
            names = tuple(sorted(request.params.keys() - _swept(cell)))
            values = tuple(request.params[name] for name in names)
            self._cells.setdefault(head, {}).setdefault(names, {}).setdefault(values, []).append(cell)

    def matching(self, config: Mapping[str, Any]) -> list[Cell]:
        """Return the cells that request a configuration; of several, the most specific ones."""
        head = _head(*(config[key] for key in ("task", "model", "data", "regularizer", "align")))
        scores = [
            (_score(cell, config["overrides"]), cell)
            for names, by_values in self._cells.get(head, {}).items()
            for cell in by_values.get(tuple(config["params"].get(name) for name in names), ())
            if cell.request.regularizer == "none" or cell.request.schedule == config["schedule"]
        ]
        best = max((score for score, _ in scores), default=None)
        return [cell for score, cell in scores if score == best]


def _head(task: str, model: str, data: str, regularizer: str, align: str) -> Hashable:
    return task, model, data.removesuffix(SYNTHETIC), *sorted(part_names(regularizer)), align


def _swept(cell: Cell) -> set[str]:
    """Return the swept parameters of a cell, and its swept recipe keys without their prefix."""
    return {key.removeprefix(RECIPE_PREFIX) for key in cell.sweep.space} if cell.sweep is not None else set()


def _score(cell: Cell, overrides: Mapping[str, Any]) -> tuple[int, int]:
    """Return how specific a cell is: its number of parameters, and the balance of equal and different overrides.

    Cells with different overrides match, too, as the configuration may belong to another variant.
    """
    keys = [key for key in cell.request.overrides if key not in _swept(cell)]
    balance = sum(1 if overrides.get(key) == cell.request.overrides[key] else -1 for key in keys)
    return len(cell.request.params.keys() - _swept(cell)), balance


def _spec(config: Mapping[str, Any]) -> str:
    """Return the regularizer of a configuration as an argument of `--regularizer`, without its defaults."""
    defaults = {**complete_spec(config["regularizer"]).params, "schedule": "constant", "align": "none"}
    values = {**config["params"], **{key: config[key] for key in ("schedule", "align")}}
    own = {key: value for key, value in values.items() if defaults.get(key) != value}
    return spec_label(config["regularizer"], own)
