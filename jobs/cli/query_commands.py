"""The query commands ``dropbench results``, ``compare`` and ``rank``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json, Output, With, emit, opened, split
from harness.cli.completion import complete_metric
from harness.cli.examples import examples
from harness.errors import InputError
from harness.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from db.report.formats.listing import TextTable

app = typer.Typer(no_args_is_help=True)


RowsFormat = Literal["table", "json", "md", "csv", "tex", "parquet"]
Kind = TypeVar("Kind", bound=str)
RankingFormat = Literal["table", "json", "md", "csv", "tex", "parquet", "png", "svg"]
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


@app.command(
    epilog=examples(
        "results dropkey/table1 regularizer=dropkey 'ratio<0.3'",
        "results --group-by regularizer --metric accuracy --format md",
        "results 3fa9 --curve train/loss --every 100",
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
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Print only the first N rows.")] = None,
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
    kind = _checked(kind, output, as_json)
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
    below = ["submitted, running: at the last `dropbench collect` on the machine with their run directories"] * dated
    below += machines
    _print(rows, kind, output, lambda: (*listing.results_table(rows), below), empty)


Side = Annotated[
    str,
    typer.Argument(
        help="A filter in quotes; or a database or exported folder, and a filter for it.",
        autocompletion=complete_filter,
    ),
]


@app.command(
    epilog=examples(
        "compare regularizer=none 'regularizer=dropkey ratio=0.3'",
        "compare colleague.db dropkey/table1 --metric accuracy",
    )
)
def compare(
    old: Side, new: Side, metric: Metric = None, beside: With = None, kind: Format = "table", output: Output = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare two filters, suites or databases: old, new, and the change, paired by seed if possible."""
    from db.queries.compare import compare as compare_sides
    from db.queries.compare import read_sides
    from db.reference.describe import describe
    from db.reference.merge import opened_with
    from db.report.formats.comparison_tables import comparison_table
    from db.schema.connection import reading
    from jobs.queue.reconcile import refresh

    kind = _checked(kind, output, as_json)
    settings = Settings.from_environment()
    with opened(settings) as own:
        refresh(own, settings)
        with opened_with(own, beside) as store:
            machines = describe(store, settings.runs)
            with (
                reading(store.engine) as connection,
                _open_side(old.split(), connection) as old_side,
                _open_side(new.split(), connection) as new_side,
            ):
                rows = compare_sides(*read_sides((old_side, new_side), split(metric)))
    above, texts, below = comparison_table(rows)
    _print(rows, kind, output, lambda: (above, texts, [*below, *machines]), "no results on either side")


@app.command(epilog=examples("rank", "rank preset=mini --by ratio --format md"))
def rank(
    words: Words = None,
    metric: Metric = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Split regularizers by a parameter, such as ratio, or by schedule or align."),
    ] = None,
    beside: With = None,
    kind: Annotated[
        RankingFormat, typer.Option("--format", help="Output format; png and svg: a critical-difference diagram.")
    ] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Rank regularizers over tasks, data and models, with their improvement over none."""
    from db.queries.rank import rank as rank_regularizers
    from db.reference.describe import describe
    from db.reference.merge import opened_with
    from db.report.formats.comparison_tables import ranking_legend, ranking_table
    from db.report.formats.listing import to_json
    from db.report.view.choices import choices_of
    from jobs.queue.reconcile import refresh

    kind = _checked(kind, output, as_json)
    settings = Settings.from_environment()
    with opened(settings) as own:
        refresh(own, settings)
        with opened_with(own, beside) as store:
            choices = choices_of(store)
            ranking = rank_regularizers(
                store, words or (), split(metric), split(by), chosen=choices.chosen, left_out=choices.others
            )
            ranking.notes += [*choices.notes, *describe(store, settings.runs)]
    if kind == "png" or kind == "svg":
        from db.report.figures.critical_difference import critical_difference_diagram

        return emit(critical_difference_diagram(ranking, kind), output)
    if kind == "json":
        return emit(to_json(asdict(ranking)), output)
    notes = [*ranking_legend(ranking), *ranking.notes]
    return _print(ranking.rows, kind, output, lambda: ([], ranking_table(ranking), notes), "no results to rank")


@contextlib.contextmanager
def _open_side(words: Sequence[str], connection: Connection) -> Iterator[tuple[Connection, Sequence[str]]]:
    """Yield the connection of a side and the words of its filter; the first word may name another database."""
    from db.transfer.source import open_source

    if words and _is_source(words[0]):
        with open_source(words[0], "sqlite://") as source:
            yield source.connection, words[1:]
    else:
        yield connection, words


def _is_source(word: str) -> bool:
    path = Path(word)
    exported = any((path / f"trials.{kind}").is_file() for kind in ("csv", "parquet"))
    return "://" in word or path.is_file() or exported or path.suffix in (".db", ".sqlite")


def _checked(kind: Kind, output: Path | None, as_json: bool) -> Kind | Literal["json"]:
    if as_json:
        return "json"
    if kind in ("parquet", "png") and output is None:
        raise InputError(f"--format {kind}: expected a file: `-o PATH`")
    return kind


def _print(
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
