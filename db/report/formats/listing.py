"""Rows of plain values as tables of texts, for `results`, `compare` and `db sql`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import typer

from dropbench.db.queries.marks import only_items
from dropbench.db.queries.results import METRIC_COLUMNS, results
from dropbench.db.report.formats.writers import to_json
from dropbench.db.statistics.seeds import AGGREGATES
from dropbench.db.store.rows import Row
from dropbench.db.store.store import Store
from dropbench.harness.cli.table import print_table
from dropbench.harness.cli.text_table import TextTable
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import complete_spec, spec_label, strengths
from dropbench.harness.trials.trial import VERSION_LENGTH

NEVER_SHARED = {
    *("regularizer", "metric", "step", *AGGREGATES, "published", "state"),
    *("old", "new", "change", "pairs", "verdict"),
}
"""Columns that remain columns when all rows agree; in a wide table also ``accuracy mean``, but not ``accuracy n``."""


def results_table(rows: Sequence[Row]) -> TextTable:
    """Return results for reading, with the values that all rows share as lines above the other columns."""
    rows, listed_params = _with_listed_versions(rows), params_to_list(rows)
    texts = [format_cells(row, listed_params) for row in rows]
    columns = {name.removesuffix(" mean"): name for row in rows for name in row}
    values = {name: [text.get(name, "") for text in texts] for name in columns}
    names = [name for name in columns if any(values[name]) and (name != "fingerprint" or needs_fingerprint(rows))]
    shared = [name for name in names if len(rows) > 1 and _shareable(columns[name]) and len(set(values[name])) == 1]
    header = [name for name in names if name not in shared]
    lines = [f"{name}: {values[name][0]}" for name in shared]
    return TextTable.of_rows(header, [[text.get(name, "") for name in header] for text in texts], above=lines)


def _with_listed_versions(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the versions of plug-ins of which they have only one."""
    texts = {text for row in rows for text in (row.get("result_versions") or "").split(", ")}
    pairs = [(item, version) for item, _, version in (text.rpartition(" ") for text in texts)]
    counts = Counter(item for item, _ in pairs)
    items = {item for item, version in pairs if counts[item] > 1 or len(version) != VERSION_LENGTH}
    return [
        {**row, "result_versions": only_items(row["result_versions"], items)} if "result_versions" in row else row
        for row in rows
    ]


def needs_fingerprint(rows: Sequence[Row]) -> bool:
    """Return whether a data set of the rows has several fingerprints."""
    pairs = {(row.get("data"), row["fingerprint"]) for row in rows if row.get("fingerprint")}
    return len({data for data, _ in pairs}) < len(pairs)


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> TextTable:
    """Return rows of values as a table of texts."""
    return TextTable.of_rows(names, [["" if value is None else _scalar(value) for value in row] for row in rows])


def print_trials(ids: Sequence[str], store: Store, analysis: str = "", *, as_json: bool = False) -> None:
    """Print the results of trials, or those of one of their analyses, as `dropbench results` does."""
    rows = results(store, ids=ids, metrics=["all"] if analysis else ())
    rows = [row for row in rows if not analysis or str(row["metric"]).startswith(f"{analysis}/")]
    if as_json:
        typer.echo(to_json(rows))
    else:
        print_table(results_table(rows))


def format_cells(row: Row, listed_params: Mapping[str, set[str]]) -> dict[str, str]:
    """Return a result as texts: parameters after the regularizer, std after the mean, defaults left out."""
    texts = {}
    for name, value in row.items():
        aggregate = name.split(" ")[-1]
        prefix = name.removesuffix(aggregate)
        if name == "params" or value is None or (aggregate == "std" and f"{prefix}mean" in row):
            continue
        if name == "regularizer" and "params" in row:
            params = {key: part for key, part in row["params"].items() if key in listed_params[value]}
            texts[name] = spec_label(value, params)
        elif name == "overrides":
            texts[name] = ",".join(f"{key}={part}" for key, part in value.items())
        elif aggregate == "mean":
            std = row.get(f"{prefix}std")
            spread = "" if std is None else f" ± {format_value(std, like=value)}"
            texts[name.removesuffix(" mean")] = format_value(value) + spread
        elif aggregate in METRIC_COLUMNS and aggregate not in ("n", "pooled"):
            texts[name] = format_value(value, like=row.get(f"{prefix}mean"))
        elif (name, value) not in (("schedule", "constant"), ("align", "none")):
            texts[name] = _scalar(value)
    return texts


def params_to_list(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Return the parameters to list per regularizer: its strength, and those with a value other than the default."""
    listed: dict[str, set[str]] = defaultdict(set)
    always: dict[str, set[str]] = {}
    defaults: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        params, name = row.get("params", {}), row.get("regularizer", "")
        if params and name not in defaults:
            defaults[name], always[name] = {}, {"ratio"}
            with suppress(InputError):  # a plug-in that is not loaded
                defaults[name], always[name] = complete_spec(name).params, strengths(name)
        listed[name] |= {
            key for key, value in params.items() if key in always[name] or defaults[name].get(key) != value
        }
    return listed


def format_value(value: float, like: float | None = None, *, signed: bool = False) -> str:
    """Return a number with two decimals, or four if it, or the number `like` shown next to it, is less than 1.

    Numbers of more than nine digits, or below 0.001, are shown as powers of ten.
    """
    size = abs(value if like is None else like)
    form = ".2e" if size >= 1e9 or 0.0 < size < 1e-3 else ".2f" if size >= 1 else ".4f"
    return f"{value:{'+' if signed else ''}{form}}".replace("-", "−")


def _shareable(name: str) -> bool:
    return name.split(" ")[-1] not in NEVER_SHARED or name.endswith(" n")


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
