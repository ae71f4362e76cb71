"""Rows of plain values in every format, for `results`, `compare`, `rank` and `db sql`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import typer

from db.queries.results import METRIC_COLUMNS, results
from db.queries.statistics import AGGREGATES
from db.report.formats.escaping import MAX_TEXT, csv_text, latex, markdown, plain
from db.store.rows import Row
from db.store.store import Store
from harness.cli.table import print_table, table_lines
from harness.errors import InputError
from harness.regularizers.spec import complete_spec, spec_label, strengths

TextTable = tuple[list[str], list[list[str]]]
"""Header and rows of texts."""

NEVER_SHARED = {
    *("regularizer", "metric", "step", *AGGREGATES, "published", "state"),
    *("old", "new", "change", "pairs", "verdict"),
}
"""Columns that remain columns when all rows agree; in a wide table also ``accuracy mean``, but not ``accuracy n``."""


def results_table(rows: Sequence[Row]) -> tuple[list[str], TextTable]:
    """Return results for reading: the values shared by all rows as lines, and a table of the other columns."""
    listed_params = _listed_params(rows)
    texts = [_row_texts(row, listed_params) for row in rows]
    columns = {name.removesuffix(" mean"): name for row in rows for name in row}
    values = {name: [text.get(name, "") for text in texts] for name in columns}
    names = [name for name in columns if any(values[name]) and (name != "fingerprint" or needs_fingerprint(rows))]
    shared = [name for name in names if len(rows) > 1 and _shareable(columns[name]) and len(set(values[name])) == 1]
    header = [name for name in names if name not in shared]
    lines = [f"{name}: {values[name][0]}" for name in shared]
    return lines, (header, [[text.get(name, "") for name in header] for text in texts])


def needs_fingerprint(rows: Sequence[Row]) -> bool:
    """Return whether a data set of the rows has several fingerprints."""
    pairs = {(row.get("data"), row["fingerprint"]) for row in rows if row.get("fingerprint")}
    return len({data for data, _ in pairs}) < len(pairs)


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> TextTable:
    """Return rows of values as a table of texts."""
    return list(names), [["" if value is None else _scalar(value) for value in row] for row in rows]


def print_listing(table: TextTable, above: Sequence[str] = (), below: Sequence[str] = ()) -> None:
    """Print a table with lines above and below it."""
    header, rows, right = _printable(table)
    print_table(header, rows, right, rule=True, above=[*map(plain, above)], below=[*map(plain, below)])


def print_trials(ids: Sequence[str], store: Store, analysis: str = "", *, as_json: bool = False) -> None:
    """Print the results of trials, or those of one of their analyses, as `dropbench results` does."""
    rows = results(store, ids=ids, metrics=["all"] if analysis else ())
    rows = [row for row in rows if not analysis or str(row["metric"]).startswith(f"{analysis}/")]
    if as_json:
        typer.echo(to_json(rows))
    else:
        above, table = results_table(rows)
        print_listing(table, above)


def to_text(table: TextTable, above: Sequence[str] = (), below: Sequence[str] = ()) -> str:
    """Return a table with lines above and below it as `print_listing` prints it into a pipe."""
    return "\n".join([*map(plain, above), *table_lines(*_printable(table), rule=True), *map(plain, below)])


def _printable(table: TextTable) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the table without control characters, and the indices of its numeric columns."""
    columns = enumerate(zip(*table[1], strict=True))
    numeric = [index for index, texts in columns if all(_is_number(text) for text in texts if text)]
    return (*_escaped(table, plain), numeric)


def _escaped(table: TextTable, escape: Callable[[str], str]) -> TextTable:
    header, rows = table
    return [*map(escape, header)], [[*map(escape, row)] for row in rows]


def to_markdown(table: TextTable, above: Sequence[str] = (), below: Sequence[str] = ()) -> str:
    """Return a GitHub table between lists of the lines above and below it."""
    header, rows = _escaped(table, markdown)
    lists = ("\n".join(f"- {markdown(line)}" for line in lines) for lines in (above, below))
    grid = "\n".join(markdown_lines([header, [":--"] * len(header), *rows]))
    return "\n\n".join(filter(None, [next(lists), grid, next(lists)]))


def markdown_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a GitHub table of escaped texts."""
    return ["| " + " | ".join(row) + " |" for row in rows]


def to_latex(table: TextTable, above: Sequence[str] = (), below: Sequence[str] = ()) -> str:
    """Return a tabular for the package booktabs between paragraphs of the lines above and below it."""
    header, rows = _escaped(table, latex)
    paragraphs = [[rf"{latex(line, MAX_TEXT)}\par" for line in lines] for lines in (above, below)]
    return "\n".join([*paragraphs[0], *latex_lines(header, rows, "l" * len(header)), *paragraphs[1]])


def latex_lines(header: Sequence[str], rows: Sequence[Sequence[str]], alignment: str) -> list[str]:
    """Return the lines of a tabular of escaped texts for the package booktabs."""
    head, *body = ["  " + " & ".join(row) + r" \\" for row in (header, *rows)]
    begin = rf"\begin{{tabular}}{{{alignment}}}"
    return [begin, r"  \toprule", head, r"  \midrule", *body, r"  \bottomrule", r"\end{tabular}"]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per row after a header: numbers in full, nested values as JSON."""
    file = io.StringIO()
    names = list(rows[0]) if rows else []
    values = ([_csv_value(row[name]) for name in names] for row in rows)
    csv.writer(file, lineterminator="\n").writerows([map(csv_text, names), *values])
    return file.getvalue().rstrip("\n")


def to_json(content: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> str:
    """Return one JSON object, or a list of them; numbers that are not finite become null."""
    return json.dumps(_finite(content), ensure_ascii=False, indent=1, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a Parquet file, nested values as JSON; raise InputError if pyarrow is not installed."""
    import pandas

    flat = [{key: json.dumps(cell) if isinstance(cell, dict) else cell for key, cell in row.items()} for row in rows]
    try:
        return pandas.DataFrame(flat).to_parquet(index=False)
    except ImportError:
        raise InputError("--format parquet needs the package pyarrow: `pip install pyarrow`") from None


def _csv_value(value: Any) -> Any:
    if isinstance(value, dict | list | bool):
        return csv_text(json.dumps(value, ensure_ascii=False))
    return csv_text(value) if isinstance(value, str) else value


def _is_number(text: str) -> bool:
    return text.split(" ± ")[0].replace("−", "-").replace(".", "", 1).lstrip("-").isdigit()


def _row_texts(row: Row, listed_params: Mapping[str, set[str]]) -> dict[str, str]:
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


def _listed_params(rows: Sequence[Row]) -> dict[str, set[str]]:
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

    Numbers of more than nine digits are shown as powers of ten.
    """
    size = abs(value if like is None else like)
    form = ".2e" if size >= 1e9 else ".2f" if size >= 1 else ".4f"
    return f"{value:{'+' if signed else ''}{form}}".replace("-", "−")


def _shareable(name: str) -> bool:
    return name.split(" ")[-1] not in NEVER_SHARED or name.endswith(" n")


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
