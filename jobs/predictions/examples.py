"""Print predictions by example: the work of `dropbench results --examples` and `compare --examples`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer

from dropbench.db.cli.output import emit
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.settings import Settings

Split = Literal["dev", "test"]


def print_examples(
    words: str, other_words: str | None, split: Split, kind: str, output: Path | None,
    *, beside: str | None = None, limit: int | None = None,
) -> None:  # fmt: skip
    """List the stored predictions of a trial, or test two trials on the same examples and list where they differ.

    Args:
        words: the beginning of a trial's id, or a filter for the seeds of one configuration.
        other_words: a second such side; None: the examples of the first are listed.
        split: split of the data.
        kind: "table", "json" or "csv".
        output: the file to write, or None for the terminal.
        beside: a reference whose trials may match, too.
        limit: number of rows printed.

    Raises:
        InputError: another format, or as `dropbench.jobs.predictions.sides.load_side`.
    """
    from dropbench.db.report.formats.writers import to_csv, to_json
    from dropbench.harness.cli.table import print_table
    from dropbench.harness.cli.text_table import to_text
    from dropbench.jobs.predictions.comparison import align, compare_sides, describe_side
    from dropbench.jobs.predictions.listing import list_disagreements, list_examples, metric_table, table_rows
    from dropbench.jobs.predictions.sides import load_side

    if kind not in ("table", "json", "csv"):
        raise InputError(f"--format {kind}: expected table, json or csv with --examples")
    settings = Settings.from_environment()
    side = load_side(words, split, settings, beside)
    if other_words is None:
        rows, note = list_examples(side), count_of(len(side.ids), "example")
        tests = describe_side(side) if kind == "table" else []
    else:
        total = len(side.ids)
        side, other = align(side, load_side(other_words, split, settings, beside))
        rows = list_disagreements(side, other)
        tests = compare_sides(side, other) if kind != "csv" else []
        note = f"{count_of(len(side.ids), 'example')} in both, {len(rows)} predicted differently"
        note += f"; {total - len(side.ids)} only in a" if total > len(side.ids) else ""
    rows = rows[:limit]
    if kind == "csv":
        emit(to_csv(rows), output)
        return
    if kind == "json":
        content = rows if other_words is None else {"metrics": [asdict(test) for test in tests], "disagreements": rows}
        emit(to_json(content), output)
        return
    tables = [table for table in (metric_table(tests), table_rows(rows)) if table.lines]
    if output is not None:
        emit("\n\n".join([*map(to_text, tables), note]), output)
        return
    for table in tables:
        print_table(table)
        typer.echo()
    typer.echo(note)
