"""Write tables of texts as Markdown and LaTeX, and rows of plain values as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dropbench.db.report.formats.escaping import MAX_TEXT, csv_text, latex, latex_definitions, markdown
from dropbench.harness.cli.text_table import TextTable
from dropbench.harness.errors import InputError

Record = Mapping[str, Any]


def to_markdown(table: TextTable) -> str:
    """Return a GitHub table between lists of the lines above and below it; the best are bold."""
    title = f"### {markdown(table.title)}" if table.title else ""
    above, below = ("\n".join(f"- {markdown(line)}" for line in lines) for lines in (table.above, table.below))
    header, *rows = _escaped(table, markdown, "**{}**", "&emsp;")
    alignment = ["--:" if index in table.right else ":--" for index in range(len(header))]
    notes = "\n".join(f"{number}. {markdown(note)}" for number, note in enumerate(table.notes, 1))
    grid = "\n".join(markdown_lines([header, alignment, *rows]))
    return "\n\n".join(filter(None, [title, above, grid, notes, below]))


def markdown_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a GitHub table of escaped texts."""
    return ["| " + " | ".join(row) + " |" for row in rows]


def to_latex(table: TextTable) -> str:
    """Return a table environment for the package booktabs, with the lines around the table; the best are bold."""
    header, *rows = ["  " + " & ".join(texts) + r" \\" for texts in _escaped(table, latex, r"\textbf{{{}}}", r"\quad ")]
    alignment = "".join("r" if index in table.right else "l" for index in range(len(table.header)))
    above, below = ([rf"  {latex(line, MAX_TEXT)}\par" for line in lines] for lines in (table.above, table.below))
    notes = [rf"  {{[}}{number}{{]}} {latex(note, MAX_TEXT)}\par" for number, note in enumerate(table.notes, 1)]
    small = r"\footnotesize\raggedright"
    lines = [
        *([rf"  \caption{{{latex(table.title)}}}"] if table.title else []),
        *([f"  {{{small}", *above, r"  \medskip}"] if above else []),
        r"  \centering",
        rf"  \begin{{tabular}}{{{alignment}}}",
        *(r"  \toprule", header, r"  \midrule", *rows, r"  \bottomrule"),
        r"  \end{tabular}",
        *([rf"  \par\medskip{small}", *notes, *below] if notes or below else []),
    ]
    definitions = [f"  {definition}" for definition in latex_definitions("".join(lines))]
    return "\n".join([r"\begin{table}", *definitions, *lines, r"\end{table}"])


def _escaped(table: TextTable, escape: Callable[[str], str], bold: str, indent: str) -> list[list[str]]:
    """Return the escaped header and lines; `indent` precedes the first text of a line below a row."""
    rows = [[escape(name) for name in table.header]]
    for line in table.lines:
        texts = [bold.format(escape(entry.text)) if entry.best else escape(entry.text) for entry in line.entries]
        rows.append([f"{indent}{texts[0]}", *texts[1:]] if line.kind == "below" else texts)
    return rows


def to_csv(rows: Sequence[Record]) -> str:
    """Return one line per row after a header: numbers in full, nested values as JSON."""
    file = io.StringIO()
    names = list(rows[0]) if rows else []
    values = ([_csv_value(row[name]) for name in names] for row in rows)
    csv.writer(file, lineterminator="\n").writerows([map(csv_text, names), *values])
    return file.getvalue().rstrip("\n")


def _csv_value(value: Any) -> Any:
    if isinstance(value, dict | list | bool):
        return csv_text(json.dumps(value, ensure_ascii=False))
    return csv_text(value) if isinstance(value, str) else value


def to_parquet(rows: Sequence[Record]) -> bytes:
    """Return a Parquet file, nested values as JSON; raise InputError if pyarrow is not installed."""
    import pandas

    flat = [{key: json.dumps(cell) if isinstance(cell, dict) else cell for key, cell in row.items()} for row in rows]
    try:
        return pandas.DataFrame(flat).to_parquet(index=False)
    except ImportError:
        raise InputError("--format parquet needs the package pyarrow: `pip install pyarrow`") from None


def to_json(content: Sequence[Record] | Record) -> str:
    """Return one JSON object, or a list of them; numbers that are not finite become null."""
    return json.dumps(nan_to_none(content), ensure_ascii=False, indent=1, allow_nan=False, default=str)


def nan_to_none(value: Any) -> Any:
    """Return a value of JSON without numbers that are not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: nan_to_none(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
