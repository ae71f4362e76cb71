"""The query commands ``dropbench results`` and ``dropbench compare``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.db.cli.output import (
    Json,
    Output,
    RowsFormat,
    With,
    checked_format,
    emit,
    note_missing_database,
    print_rows,
    split,
)
from dropbench.harness.cli.completion import Item, complete_metric, complete_run
from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.settings import Settings
from dropbench.jobs.predictions.examples import Split, print_examples

if TYPE_CHECKING:
    from sqlalchemy import Connection


app = typer.Typer(no_args_is_help=True, add_completion=False)


SUFFIXES = (".db", ".sqlite")
"""How the names of databases end that need not exist: a missing one is an error."""

CompareFormat = Literal["table", "json", "md", "csv", "tex", "parquet", "png", "svg"]
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
    from dropbench.db.queries.results import curves, explain_empty, pivot, sort_rows
    from dropbench.db.queries.results import results as query
    from dropbench.db.reference.describe import describe
    from dropbench.db.report.formats.listing import results_table
    from dropbench.db.statistics.seeds import DEFAULT_AGGREGATES
    from dropbench.harness.runs.run_directory import Runs
    from dropbench.jobs.queue.reconcile import ACTIVE, opened_results

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
    with opened_results(settings, beside, thorough=curve is not None) as store:
        if curve is not None:
            rows = curves(store, words or (), curve, every=every, **options)
        else:
            rows = query(store, words or (), metrics=split(metric), **options)
        empty = "" if rows else explain_empty(store, words or ())
        machines = describe(store, settings.runs)
        elsewhere = any(id not in Runs(settings.runs) for id in store.find(ACTIVE))
    rows = sort_rows(pivot(rows) if wide else rows, split(sort), limit)
    dated = elsewhere and any(row.get("state") in ("submitted", "running") for row in rows)
    below = ["submitted, running: at the last `dropbench status` on the machine with their run directories"] * dated
    below += machines
    print_rows(rows, kind, output, lambda: replace(results_table(rows), below=below), empty)
    note_missing_database(settings)


def _complete_side(incomplete: str) -> list[Item]:
    """Complete the id of a trial, or a word of a filter."""
    return list({**dict(complete_run(incomplete)), **dict(complete_filter(incomplete))}.items())


@app.command(
    epilog=examples(
        "compare regularizer=none 'regularizer=dropkey ratio=0.3'",
        "compare colleague.db dropkey/table1 --metric accuracy",
        "compare 3fa9 81c0 --examples test",
        "compare --rank preset=mini --by ratio",
    )
)
def compare(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OLD NEW",
            help="Filters in quotes, trials, or databases, each with a filter; with --rank: FILTER",
            autocompletion=_complete_side,
        ),
    ] = None,
    metric: Metric = None,
    example_split: Examples = None,
    rank: Annotated[
        bool, typer.Option("--rank", help="Instead: rank regularizers over tasks, data and models, against none.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="With --rank: split regularizers by a parameter, schedule or align."),
    ] = None,
    limit: Limit = None,
    beside: With = None,
    kind: Annotated[
        CompareFormat, typer.Option("--format", help="Output format; with --rank, png or svg: a diagram.")
    ] = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Compare two filters, trials or databases: old, new, and the change, paired by seed if possible.

    With --examples, the two are tested on the same examples, and those that they predict differently are listed.
    Intervals and p-values are over the examples of the split: they say how far other examples could change the
    result. The deviation over seeds says how far other seeds could.
    """
    kind = checked_format(kind, output, as_json)
    if rank:
        if example_split is not None:
            raise InputError(f"--examples {example_split}: expected no --rank")
        _rank(words or (), metric, by, limit, beside, kind, output)
        return
    if by:
        raise InputError(f"--by {by[0]}: expected --rank, too")
    sides = words or []
    if len(sides) != 2:
        raise InputError(f"compare: expected two sides, OLD and NEW, or --rank, not {len(sides)}")
    old, new = sides
    if example_split is not None:
        if metric:
            raise InputError(f"--examples {example_split}: compares every metric: expected no --metric")
        print_examples(old, new, example_split, kind, output, beside=beside, limit=limit)
    elif kind == "png" or kind == "svg":
        raise InputError(f"--format {kind}: expected --rank, too")
    else:
        _compare(old, new, metric, limit, beside, kind, output)


def _compare(
    old: str, new: str, metric: list[str] | None, limit: int | None, beside: str | None,
    kind: RowsFormat, output: Path | None,
) -> None:  # fmt: skip
    from dropbench.db.queries.compare import compare as compare_sides
    from dropbench.db.queries.sides import read_sides
    from dropbench.db.reference.describe import describe
    from dropbench.db.report.formats.comparison_tables import comparison_table
    from dropbench.db.report.view.choices import choices_of
    from dropbench.db.schema.connection import reading
    from dropbench.jobs.queue.reconcile import opened_results

    settings = Settings.from_environment()
    with opened_results(settings, beside) as store, reading(store.engine) as connection:
        machines, choices = describe(store, settings.runs), choices_of(store)
        with _open_side(_words(old), connection) as old_side, _open_side(_words(new), connection) as new_side:
            sides = read_sides((old_side, new_side), split(metric), chosen=choices.keys, left_out=choices.others)
            rows = compare_sides(*sides)[:limit]
    table = comparison_table(rows)
    notes = choices.notes if (count := sum(side.left_out for side in sides)) else []
    if count:
        trials = count_of(count, "trial")
        notes = [
            *notes,
            f"left out: {trials} that only chose candidates; `'seed>=0'` in OLD and NEW compares them, too",
        ]
    table.below = [*table.below, *notes, *machines]
    print_rows(rows, kind, output, lambda: table, "; ".join(["no results on either side", *notes]))
    note_missing_database(settings)


def _rank(
    words: Sequence[str], metric: list[str] | None, by: list[str] | None, limit: int | None, beside: str | None,
    kind: CompareFormat, output: Path | None,
) -> None:  # fmt: skip
    from dropbench.db.queries.rank import rank as rank_regularizers
    from dropbench.db.reference.describe import describe
    from dropbench.db.report.formats.comparison_tables import ranking_table
    from dropbench.db.report.formats.writers import to_json
    from dropbench.db.report.view.choices import choices_of
    from dropbench.jobs.queue.reconcile import opened_results

    if limit is not None:
        raise InputError(f"--limit {limit}: a ranking is of all regularizers: pass a FILTER")
    settings = Settings.from_environment()
    with opened_results(settings, beside) as store:
        choices = choices_of(store)
        ranking = rank_regularizers(
            store, words, split(metric), split(by), chosen=choices.chosen, left_out=choices.others
        )
        ranking.notes += [*choices.notes, *describe(store, settings.runs)]
    if kind == "png" or kind == "svg":
        from dropbench.db.report.figures.critical_difference import critical_difference_diagram

        emit(critical_difference_diagram(ranking, kind), output)
    elif kind == "json":
        emit(to_json(asdict(ranking)), output)
    else:
        print_rows(ranking.rows, kind, output, lambda: ranking_table(ranking), "no results to rank")
    note_missing_database(settings)


@contextlib.contextmanager
def _open_side(words: Sequence[str], connection: Connection) -> Iterator[tuple[Connection, Sequence[str]]]:
    """Yield the connection of a side and the words of its filter; the first word may name another database."""
    from dropbench.db.transfer.source import open_source

    if words and _is_source(words[0]):
        with open_source(words[0], "sqlite://") as source:
            yield source.connection, words[1:]
    else:
        yield connection, words


def _words(side: str) -> list[str]:
    """Return the words of a side, of which the first may be the path of a database, with spaces in it."""
    parts = side.split(" ")
    for count in range(len(parts), 0, -1):
        if _is_file(path := " ".join(parts[:count])):
            return [path, *" ".join(parts[count:]).split()]
    return [side] if Path(side).suffix in SUFFIXES else side.split()


def _is_file(path: str) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - unlike Path's, it takes names of any length


def _is_source(word: str) -> bool:
    return "://" in word or _is_file(word) or Path(word).suffix in SUFFIXES
