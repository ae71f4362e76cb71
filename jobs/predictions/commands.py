"""The command ``dropbench predictions``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json, Output, With, emit
from harness.cli.completion import Item, complete_run
from harness.cli.examples import examples
from harness.errors import count_of
from harness.settings import Settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def _complete_side(incomplete: str) -> list[Item]:
    """Complete the id of a trial, or a word of a filter."""
    return list({**dict(complete_run(incomplete)), **dict(complete_filter(incomplete))}.items())


Side = typer.Argument(
    metavar="ID|FILTER", help="A trial, or a filter in quotes for the seeds of one configuration.", show_default=False,
    autocompletion=_complete_side,
)  # fmt: skip


@app.command(
    epilog=examples(
        "predictions 3fa9 --limit 20",
        "predictions 3fa9 81c0",
        "predictions regularizer=none regularizer=dropkey --json",
    )
)
def predictions(
    a: Annotated[str, Side],
    b: Annotated[str | None, Side] = None,
    split: Annotated[Literal["dev", "test"], typer.Option(help="Split of the data.")] = "test",
    beside: With = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Print only the first N rows.")] = None,
    kind: Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="Output format.")] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List the stored predictions of a trial, or test two trials on the same examples and list where they differ.

    Intervals and p-values are over the examples of the split: they say how far other examples could change the
    result. The deviation over seeds says how far other seeds could.
    """
    from db.report.formats.writers import to_csv, to_json
    from harness.cli.table import print_table
    from harness.cli.text_table import to_text
    from jobs.predictions.comparison import align, compare_sides, describe_side
    from jobs.predictions.listing import list_disagreements, list_examples, metric_table, table_rows
    from jobs.predictions.sides import load_side

    settings = Settings.from_environment()
    kind = "json" if as_json else kind
    side = load_side(a, split, settings, beside)
    if b is None:
        rows, note = list_examples(side), count_of(len(side.ids), "example")
        tests = describe_side(side) if kind == "table" else []
    else:
        total = len(side.ids)
        side, other = align(side, load_side(b, split, settings, beside))
        rows = list_disagreements(side, other)
        tests = compare_sides(side, other) if kind != "csv" else []
        note = f"{count_of(len(side.ids), 'example')} in both, {len(rows)} predicted differently"
        note += f"; {total - len(side.ids)} only in a" if total > len(side.ids) else ""
    rows = rows[:limit]
    if kind == "csv":
        emit(to_csv(rows), output)
        return
    if kind == "json":
        content = rows if b is None else {"metrics": [asdict(test) for test in tests], "disagreements": rows}
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
