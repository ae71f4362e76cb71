"""The command ``dropbench results``, and what it shares with ``dropbench compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json, Output, With, emit, opened, split
from harness.cli.completion import complete_metric
from harness.cli.examples import examples
from harness.errors import InputError
from harness.settings import Settings
from jobs.predictions.examples import Split, print_examples

if TYPE_CHECKING:
    from db.report.formats.listing import TextTable

app = typer.Typer(no_args_is_help=True, add_completion=False)


RowsFormat = Literal["table", "json", "md", "csv", "tex", "parquet"]
Kind = TypeVar("Kind", bound=str)
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="Suite, state, start of a trial's id, KEY=VALUE or 'accuracy>90'; all must hold. `not` negates a word.",
        autocompletion=complete_filter,
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Such as accuracy (on the test set), dev/accuracy, or all.",
        autocompletion=complete_metric,
    ),
]
Format = Annotated[RowsFormat, typer.Option("--format", help="Output format.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Print only the first N rows.")]
Examples = Annotated[
    Split | None,
    typer.Option("--examples", help="Instead: stored predictions for each example of this split of the data."),
]


@app.command(
    epilog=examples(
        "results dropkey/table1 regularizer=dropkey 'ratio<0.3'",
        "results --group-by regularizer --metric accuracy --format md",
        "results 3fa9 --curve train/loss --every 100",
        "results 3fa9 --examples test --limit 20",
    )
)
def results(
    words: Words = None,
    group_by: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Average over all but these keys, such as data or ratio.")
    ] = None,
    metric: Metric = None,
    aggregate: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="mean, std, n (the default), median, min, max or sem.")
    ] = None,
    curve: Annotated[str | None, typer.Option(metavar="NAME", help="Print a curve, such as train/loss.")] = None,
    every: Annotated[int, typer.Option(min=1, metavar="N", help="Print every N-th point of a curve and the last.")] = 1,
    wide: Annotated[bool, typer.Option("--wide", help="Print one column per metric instead of one row.")] = False,
    sort: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Sort by a column; -KEY: descending.")] = None,
    limit: Limit = None,
    example_split: Examples = None,
    beside: With = None,
    kind: Format = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Query metrics averaged over seeds: one row per suite, configuration and metric."""
    from db.queries.results import curves, explain_empty, pivot, sort_rows
    from db.queries.results import results as query
    from db.queries.statistics import DEFAULT_AGGREGATES
    from db.reference.describe import describe
    from db.reference.merge import opened_with
    from db.report.formats import listing
    from jobs.queue.reconcile import refresh

    if curve is not None and (metric or wide):
        raise InputError(f"--curve {curve}: prints the points of one curve: expected no --metric or --wide")
    if every > 1 and curve is None:
        raise InputError("--every: expected --curve NAME, too")
    kind = checked_format(kind, output, as_json)
    if example_split is not None:
        others = {"metric": metric, "curve": curve, "wide": wide, "group-by": group_by, "aggregate": aggregate}
        if option := next((name for name, value in {**others, "sort": sort}.items() if value), None):
            raise InputError(f"--examples {example_split}: lists single examples: expected no --{option}")
        print_examples(" ".join(words or ()), None, example_split, kind, output, beside=beside, limit=limit)
        return
    options = {"group_by": split(group_by), "aggregates": split(aggregate) or DEFAULT_AGGREGATES}
    settings = Settings.from_environment()
    with opened(settings) as own:
        current = refresh(own, settings, thorough=curve is not None)
        with opened_with(own, beside) as store:
            if curve is not None:
                rows = curves(store, words or (), curve, every=every, **options)
            else:
                rows = query(store, words or (), metrics=split(metric), **options)
            empty = "" if rows else explain_empty(store, words or ())
            machines = describe(store, settings.runs)
    rows = sort_rows(pivot(rows) if wide else rows, split(sort), limit)
    dated = not current and any(row.get("state") in ("submitted", "running") for row in rows)
    below = ["submitted, running: at the last `dropbench status` on the machine with their run directories"] * dated
    below += machines
    print_rows(rows, kind, output, lambda: (*listing.results_table(rows), below), empty)


def checked_format(kind: Kind, output: Path | None, as_json: bool) -> Kind | Literal["json"]:
    """Return the format of the output; raise InputError for a binary one without a file."""
    if as_json:
        return "json"
    if kind in ("parquet", "png") and output is None:
        raise InputError(f"--format {kind}: expected a file: `-o PATH`")
    return kind


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    kind: RowsFormat,
    output: Path | None,
    table: Callable[[], tuple[Sequence[str], TextTable, Sequence[str]]],
    empty: str,
) -> None:
    """Print rows; `table` returns their readable form: lines above, header and texts, lines below."""
    from db.report.formats import listing

    if kind == "parquet":
        return emit(listing.to_parquet(rows), output)
    if kind in ("json", "csv"):
        return emit(listing.to_json(rows) if kind == "json" else listing.to_csv(rows), output)
    above, texts, below = table()
    if kind in ("md", "tex"):
        return emit((listing.to_markdown if kind == "md" else listing.to_latex)(texts, above, below), output)
    if not rows:
        return emit(empty, output)
    if output is None:
        return listing.print_listing(texts, above, below)
    return emit(listing.to_text(texts, above, below), output)
