"""The commands that ask: ``dropbench results``, ``compare`` and ``rank``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.printing import Json, Output, emit, opened, show, split

if TYPE_CHECKING:
    from rich.console import Console
    from sqlalchemy import Connection

    from db.report.listing import Headed
    from db.store import Store

app = typer.Typer(no_args_is_help=True)


class RowsFormat(StrEnum):
    """How rows are printed."""

    table = "table"
    json = "json"
    md = "md"
    csv = "csv"
    tex = "tex"
    parquet = "parquet"


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="A suite, a state, the start of a trial's id, KEY=VALUE, 'accuracy>90'; all must hold; not before a word.",
    ),
]
Metric = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Such as accuracy (of the test set), dev/accuracy, or all.")
]
Format = Annotated[RowsFormat, typer.Option("--format", help="How to print it.")]


@app.command()
def results(
    words: Words = None,
    group_by: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Average over all but these keys, such as data or ratio.")
    ] = None,
    metric: Metric = None,
    aggregate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of mean, std, median, min, max, n, sem; default: mean,std,n."),
    ] = None,
    curve: Annotated[
        str | None, typer.Option(metavar="NAME", help="The points of a curve instead, such as train/loss.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, metavar="N", help="Of a curve only every N-th point, and the last.")] = 1,
    wide: Annotated[bool, typer.Option("--wide", help="A column a metric instead of a row.")] = False,
    sort: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Sort by a column; -KEY: the largest first.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="The first N rows alone.")] = None,
    kind: Format = RowsFormat.table,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Query metrics, averaged over seeds: one row a suite, configuration and metric."""
    from db import shape
    from db.aggregates import USUAL
    from db.query import curves
    from db.query import results as query
    from db.report import listing
    from harness.errors import InputError
    from harness.settings import Settings

    if curve is not None and (metric or wide):
        raise InputError(f"--curve {curve}: gives the points of one curve: expected no --metric or --wide beside it")
    if every > 1 and curve is None:
        raise InputError("--every: expected --curve NAME beside it")
    kind = _checked(kind, output, as_json)
    asked = {"group_by": split(group_by), "aggregates": split(aggregate) or USUAL}
    with opened(Settings.from_environment()) as store:
        if curve is not None:
            rows = curves(store, words or (), curve, every=every, **asked)
        else:
            rows = query(store, words or (), metrics=split(metric), **asked)
    rows = shape.ordered(shape.wide(rows) if wide else rows, split(sort), limit)
    _print(rows, kind, output, lambda: (*listing.results_table(rows), []), "no results: dropbench run SUITE makes some")


Side = Annotated[str, typer.Argument(help="A filter in quotes; or a database or exported folder, and a filter of it.")]


@app.command()
def compare(
    old: Side, new: Side, metric: Metric = None, kind: Format = RowsFormat.table, output: Output = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare what two filters, suites or databases have: old, new, and the change, seed by seed where both have it."""
    from db.compare import compare as compared
    from db.compare import side
    from db.report.answers import comparison_table
    from harness.settings import Settings

    kind = _checked(kind, output, as_json)
    with opened(Settings.from_environment()) as store:
        sides = []
        for given in (old, new):
            with _side_of(given.split(), store) as (connection, words):
                sides.append(side(connection, words, split(metric)))
    rows = compared(*sides)
    _print(rows, kind, output, lambda: comparison_table(rows), "no results on either side")


@app.command()
def rank(
    words: Words = None,
    metric: Metric = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Split regularizers by a parameter, such as ratio, or by schedule or align."),
    ] = None,
    kind: Format = RowsFormat.table,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Rank regularizers over tasks, data and models, and tell how much better they are than none."""
    from dataclasses import asdict

    from db.rank import rank as ranked
    from db.report.answers import ranking_table
    from db.report.listing import to_json
    from harness.settings import Settings

    kind = _checked(kind, output, as_json)
    with opened(Settings.from_environment()) as store:
        found = ranked(store, words or (), split(metric), split(by))
    if kind is RowsFormat.json:
        return emit(to_json(asdict(found)), output)
    return _print(found.rows, kind, output, lambda: ([], ranking_table(found), found.notes), "no results to rank")


@contextlib.contextmanager
def _side_of(words: Sequence[str], store: Store) -> Iterator[tuple[Connection, Sequence[str]]]:
    """What a side is read from, and the words of its filter: the first may be another database."""
    from db.connection import reading
    from db.source import open_source

    if words and _is_source(words[0]):
        with open_source(words[0], "sqlite://") as source:
            yield source.connection, words[1:]
    else:
        with reading(store.engine) as connection:
            yield connection, words


def _is_source(word: str) -> bool:
    path = Path(word)
    exported = any((path / f"trials.{kind}").is_file() for kind in ("csv", "parquet"))
    return "://" in word or path.is_file() or exported or path.suffix in (".db", ".sqlite")


def _checked(kind: RowsFormat, output: Path | None, as_json: bool) -> RowsFormat:
    from harness.errors import InputError

    if as_json:
        return RowsFormat.json
    if kind is RowsFormat.parquet and output is None:
        raise InputError("--format parquet: expected a file: -o PATH")
    return kind


def _print(
    rows: Sequence[Mapping[str, Any]],
    kind: RowsFormat,
    output: Path | None,
    table: Callable[[], tuple[Sequence[str], Headed, Sequence[str]]],
    empty: str,
) -> None:
    """Print rows; `table` makes them readable: lines above, header and texts, lines below."""
    from db.report import listing

    if kind is RowsFormat.parquet:
        return emit(listing.to_parquet(rows), output)
    if kind is RowsFormat.json:
        return emit(listing.to_json(rows), output)
    if kind is RowsFormat.csv:
        return emit(listing.to_csv(rows), output)
    above, headed, below = table()
    if kind is RowsFormat.md:
        return emit(listing.to_markdown(headed), output)
    if kind is RowsFormat.tex:
        return emit(listing.to_latex(headed), output)
    if not rows:
        return emit(empty, output)

    def draw(console: Console) -> None:
        listing.print_table(headed, console, above, below)

    return show(draw, output)
