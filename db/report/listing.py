"""Rows of plain values in every format: for `results` and `db sql`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from db.aggregates import AGGREGATES
from db.report.text import csv_text, latex, markdown, plain
from db.shape import OF_METRICS
from harness.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
Headed = tuple[list[str], list[list[str]]]

NEVER_SHARED = {
    *("regularizer", "metric", "step", *AGGREGATES, "published", "state"),
    *("old", "new", "change", "pairs", "verdict"),
}
"""Columns that stay columns when all rows agree; of a wide row also ``accuracy mean``, but not ``accuracy n``."""


def results_table(rows: Sequence[Row]) -> tuple[list[str], Headed]:
    """Results for reading: what all rows share as lines above, the rest as header and texts."""
    told_params = _told_params(rows)
    texts = [_told(row, told_params) for row in rows]
    columns = {_heading(name): name for row in rows for name in row}
    values = {name: [text.get(name, "") for text in texts] for name in columns}
    names = [name for name in columns if any(values[name])]
    shared = [name for name in names if len(rows) > 1 and _shareable(columns[name]) and len(set(values[name])) == 1]
    kept = [name for name in names if name not in shared]
    return [f"{name}: {values[name][0]}" for name in shared], (
        kept,
        [[text.get(name, "") for name in kept] for text in texts],
    )


def plain_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Headed:
    """Rows as texts."""
    return list(names), [["" if value is None else _scalar(value) for value in row] for row in rows]


def to_markdown(table: Headed) -> str:
    """A GitHub table."""
    names, rows = table
    lines = [
        [markdown(name) for name in names],
        [":--"] * len(names),
        *([markdown(text) for text in row] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_latex(table: Headed) -> str:
    """A tabular for the package booktabs."""
    names, rows = table

    def line(texts: Sequence[str]) -> str:
        return "  " + " & ".join(latex(text) for text in texts) + r" \\"

    return "\n".join(
        [
            rf"\begin{{tabular}}{{{'l' * len(names)}}}",
            r"  \toprule",
            line(names),
            r"  \midrule",
            *map(line, rows),
            r"  \bottomrule",
            r"\end{tabular}",
        ]
    )


def to_csv(rows: Sequence[Row], names: Sequence[str] | None = None) -> str:
    """One line a row, numbers in full, nested values as JSON."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = names if names is not None else list(rows[0]) if rows else []
    writer.writerow([csv_text(name) for name in names])
    for row in rows:
        writer.writerow([csv_value(row[name]) for name in names])
    return file.getvalue().rstrip("\n")


def to_json(content: Sequence[Row] | Row) -> str:
    """A list of objects, or one; null for what is no finite number, which JSON cannot say."""
    return json.dumps(_finite(content), ensure_ascii=False, indent=1, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_parquet(rows: Sequence[Row]) -> bytes:
    """A Parquet file; nested values as JSON. Raises InputError where pyarrow is not installed."""
    import pandas

    flat = [
        {key: json.dumps(value) if isinstance(value, dict) else value for key, value in row.items()} for row in rows
    ]
    try:
        return pandas.DataFrame(flat).to_parquet(index=False)
    except ImportError:
        raise InputError("Parquet needs the package pyarrow: pip install pyarrow") from None


def print_table(table: Headed, console: Console, above: Sequence[str] = (), below: Sequence[str] = ()) -> None:
    """Print it; in a pipe, which has no width to fit, one line a row."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names, rows = table
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for place, name in enumerate(names):
        number = all(_is_number(row[place]) for row in rows if row[place]) and bool(rows)
        grid.add_column(Text(plain(name)), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        grid.add_row(*(Text(plain(text)) for text in row))
    for line in above:
        console.print(Text(plain(line), style="dim"))
    if console.is_terminal:
        console.print(grid)
    else:
        Console(width=1000, file=console.file).print(grid)
    for line in below:
        console.print(Text(plain(line), style="dim"), soft_wrap=True)


def csv_value(value: Any) -> Any:
    """A value as one field."""
    if isinstance(value, dict | list | bool):
        return csv_text(json.dumps(value, ensure_ascii=False))
    return csv_text(value) if isinstance(value, str) else value


def _is_number(text: str) -> bool:
    return text.split(" ± ")[0].replace("−", "-").replace(".", "", 1).lstrip("-").isdigit()


def _told(row: Row, told_params: Mapping[str, set[str]]) -> dict[str, str]:
    """A result as texts: parameters behind the regularizer, std behind the mean, nothing for what is usual."""
    told = {}
    for name, value in row.items():
        before, aggregate = name.removesuffix(name.split(" ")[-1]), name.split(" ")[-1]
        mean = row.get(f"{before}mean")
        if name == "params" or value is None or (aggregate == "std" and f"{before}mean" in row):
            continue
        if name == "regularizer" and "params" in row:
            shown = [f"{key}={part}" for key, part in row["params"].items() if key in told_params[value]]
            told[name] = f"{value}:{','.join(shown)}" if shown else str(value)
        elif name == "overrides":
            told[name] = ",".join(f"{key}={part}" for key, part in value.items())
        elif aggregate == "mean":
            spread = row.get(f"{before}std")
            told[_heading(name)] = number(value) + ("" if spread is None else f" ± {number(spread, like=value)}")
        elif aggregate in OF_METRICS and aggregate != "n":
            told[name] = number(value, like=mean)
        elif (name, value) not in (("schedule", "constant"), ("align", "none")):
            told[name] = _scalar(value)
    return told


def _told_params(rows: Sequence[Row]) -> dict[str, set[str]]:
    """By regularizer the ratio, and the parameters that some row has changed; the others only make tables wide."""
    told: dict[str, set[str]] = defaultdict(set)
    defaults: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        params, name = row.get("params", {}), row.get("regularizer", "")
        if params and name not in defaults:
            defaults[name] = _defaults(name)
        told[name] |= {key for key, value in params.items() if key == "ratio" or defaults[name].get(key) != value}
    return told


def _defaults(regularizer: str) -> Mapping[str, Any]:
    """What a regularizer's parameters are by default; nothing where it is a plug-in's that is not loaded."""
    from harness.regularizers.spec import complete_spec

    try:
        return complete_spec(regularizer).params
    except InputError:
        return {}


def number(value: float, like: float | None = None, *, signed: bool = False) -> str:
    """Two decimals; four of what is less than 1, or beside such a value (`like`)."""
    digits = 2 if abs(value if like is None else like) >= 1 else 4
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def _heading(name: str) -> str:
    """The column of a wide row's means is called by the metric, as they are what one looks for."""
    return name.removesuffix(" mean")


def _shareable(name: str) -> bool:
    return name.split(" ")[-1] not in NEVER_SHARED or name.endswith(" n")


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
