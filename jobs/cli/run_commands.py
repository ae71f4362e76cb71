"""The commands that enqueue trials, or train them on this machine: `dropbench run`, `enqueue`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dropbench.db.cli.output import Json, With
from dropbench.harness.cli.completion import complete_suite, one_of
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.option_groups import GroupedCommand
from dropbench.harness.errors import count_of
from dropbench.jobs.cli.options import RunOptions, with_run_options

if TYPE_CHECKING:
    from dropbench.db.store.store import Enqueued, Store
    from dropbench.harness.settings import Settings
    from dropbench.harness.suites.request import Request
    from dropbench.jobs.queue.request import Requested

app = typer.Typer(no_args_is_help=True)


@app.command(
    cls=GroupedCommand,
    epilog=examples(
        "run quickstart",
        "run dropkey/table1 --data cifar100 --seeds 3 --set steps=200",
        "run quickstart --regularizer dropkey:ratio=0.2,schedule=increasing",
        "run --task image-classification --data digits --model vit-digits",
    ),
)
@with_run_options()
def run(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="A suite, or your own .yaml file.", autocompletion=complete_suite),
    ] = None,
    *,
    options: RunOptions,
    parallel: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum workers; default: GPUs, else cores.")
    ] = None,
    executor: Annotated[
        str,
        typer.Option(help="local: background workers; debug: this process.", autocompletion=one_of("local", "debug")),
    ] = "local",
    beside: With = None,
    as_json: Json = False,
) -> None:
    """Train a suite or one configuration on this machine, and print its table. Finished trials are not repeated."""
    from dropbench.db.reference.merge import opened_with
    from dropbench.db.schema.connection import database_name
    from dropbench.db.store.store import open_store
    from dropbench.jobs.queue.run_loop import run as run_trials

    plan = options.plan(executor, parallel, ("local", "debug"))
    settings = options.settings(here=True)
    requested = options.requested(suite, settings)
    report_budgets(requested.request)
    left_out = _in_reference(requested, beside) if beside is not None else frozenset()
    with open_store(settings.database) as store:
        with only_json(as_json):
            summary = run_trials(store, settings, requested, plan, left_out=left_out)
        trials = count_of(len(summary.rows), "trial")
        if summary.interrupted:
            done, command = len(summary.in_states("succeeded")), shlex.join(["dropbench", *sys.argv[1:]])
            typer.echo(f"Stopped: {done} of {trials} done. Resume with `{command}`", err=True)
            raise typer.Exit(128 + summary.interrupted)
        if not summary.trained:
            skipped = f" or skipped ({count})" if (count := len(summary.in_states("skipped"))) else ""
            typer.echo(f"nothing to train: {trials} already done{skipped}", err=True)
        with opened_with(store, beside) as tables:
            complete = _print_results(summary.request, settings, tables, store, as_json=as_json)
        name = database_name(store.engine)
    command = f"report --request {summary.request.id}" if _is_own_table(summary.request) else "results"
    typer.echo(f"results: {name} (`dropbench {command}`); run directories: {settings.runs}", err=True)
    failures = summary.failures()
    typer.echo("".join(f"{line}\n" for line in failures), nl=False, err=True)
    raise typer.Exit(bool(failures) or not complete)


def _print_results(request: Request, settings: Settings, tables: Store, own: Store, *, as_json: bool) -> bool:
    """Print the table of a request, or results of one configuration; return whether all analyses were successful."""
    if not (request.suite.name or _is_own_table(request)):
        from dropbench.db.report.formats.listing import print_trials
        from dropbench.db.schema.reference import ORIGINS, stored_id

        shown = [stored_id(id, origin) for id in request.trials for origin in ORIGINS]
        print_trials(shown, tables, as_json=as_json)
        return True
    from dropbench.db.report.view.requests import look_up
    from dropbench.jobs.cli.suite_analysis import show_table

    table = look_up(tables, request=request.id)
    return table is None or show_table(table, settings, tables, own, as_json=as_json)


def _is_own_table(request: Request) -> bool:
    """Return whether a request without a suite has several rows."""
    return not request.suite.name and len(request.rows) > 1


def _in_reference(requested: Requested, location: str) -> frozenset[str]:
    """Return the ids of the requested trials that a reference has, and report their number."""
    from dropbench.db.reference.load import open_reference

    with open_reference(location) as reference:
        known = reference.states(list(requested.trials)).keys()
    count = count_of(len(requested.trials), "trial")
    if known:
        line = f"{len(known)} of {count} are in the reference and are not trained"
    else:
        line = (
            f"none of {count} is in the reference, which is of other data, settings or result versions:"
            f" `dropbench results --with {location}` lists it"
        )
    typer.echo(line, err=True)
    return frozenset(known)


@app.command(
    cls=GroupedCommand,
    epilog=examples("enqueue quickstart", "enqueue dropkey/table1 dropkey/table2 --preset paper --seeds 3"),
)
@with_run_options("device", "backend", "compile", "threads", "gpus_per_trial", "checkpoint_seconds")
def enqueue(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="Suites by name, or your own .yaml files.", autocompletion=complete_suite),
    ] = None,
    *,
    options: RunOptions,
    as_json: Json = False,
) -> None:
    """Enqueue the trials of suites or of one configuration for `dropbench submit`; of a search, its next candidates."""
    from dropbench.db.store.store import open_store
    from dropbench.jobs.queue.status import explain_skipped

    settings = options.settings(here=False)
    with open_store(settings.database) as store:
        enqueued, remaining = enqueue_suites(store, settings, suites or [], options)
        queued = store.counts([*enqueued.added, *enqueued.present])["queued"]
        reasons = [row.reason for row in store.states(enqueued.skipped).values()]
    if as_json:
        typer.echo(json.dumps({**asdict(enqueued), "unasked": remaining}))
        return
    lines = [f"{describe(enqueued)} {queued} queued; run `dropbench submit`.", *explain_skipped(reasons)]
    typer.echo("\n".join([*lines, *describe_remaining(remaining, "enqueue")]))


def enqueue_suites(store: Store, settings: Settings, suites: list[str], options: RunOptions) -> tuple[Enqueued, int]:
    """Enqueue the trials of suites, or of one configuration if there are none, and the next candidates of searches.

    Return the ids, and the number of candidates of searches that are still to come.
    """
    from dropbench.db.store.store import Enqueued
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.queue.search import Searches

    enqueued, remaining = Enqueued([], [], []), 0
    names: list[str | None] = [*suites] or [None]
    for requested in [options.requested(name, settings) for name in names]:
        report_budgets(requested.request)
        searches = Searches(store, settings, requested)
        searches.start()
        if searches.searched:
            collect(store, settings)
            searches.ask()
        for name, ids in vars(searches.enqueued).items():
            getattr(enqueued, name).extend(ids)
        remaining += searches.remaining
    return enqueued, remaining


def report_budgets(request: Request) -> None:
    """Print the tuning budgets of a request to standard error, with a warning if rows have different ones."""
    from dropbench.harness.suites.budget import budget_lines

    if lines := budget_lines(request.cells):
        typer.echo("\n".join(lines), err=True)


def describe(enqueued: Enqueued) -> str:
    """Return a line on the trials that were enqueued."""
    again = f", {len(enqueued.requeued)} of them queued again" if enqueued.requeued else ""
    return f"Added {count_of(len(enqueued.added), 'trial')} ({len(enqueued.present)} already present{again})."


def describe_remaining(remaining: int, command: str) -> list[str]:
    """Return a line on the candidates of searches that depend on the results of the enqueued ones, if there are any."""
    again = f"run the same `dropbench {command}` again when these trials are done."
    return [f"{count_of(remaining, 'candidate')} of searches remaining: {again}"] if remaining else []


def only_json(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Send what a trial in this process prints to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
