"""The commands on queued trials: `dropbench status`, `logs`, `cancel`, `retry`, `gc`."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.db.cli.output import Json
from dropbench.harness.cli.completion import complete_run, one_of
from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import open_regular
from dropbench.harness.settings import Settings

if TYPE_CHECKING:
    from dropbench.db.store.store import Store
    from dropbench.harness.runs.run_directory import RunDirectory

app = typer.Typer(no_args_is_help=True)

Filter = Annotated[
    list[str],
    typer.Argument(
        metavar="FILTER…",
        help="Conditions that must all hold: a suite, a state, an id's beginning, KEY=VALUE, 'KEY<VALUE', not WORD.",
        autocompletion=complete_filter,
    ),
]

LOG_POLL_INTERVAL_S = 0.3

RUN_THEM = "run `dropbench submit` or `dropbench run SUITE`"


@contextlib.contextmanager
def _open_store() -> Iterator[tuple[Store, Settings]]:
    from dropbench.db.store.store import open_store

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        yield store, settings


@app.command(epilog=examples("status", "status --watch", "status --usage user"))
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Follow the trials until none is active.")] = False,
    usage: Annotated[
        str | None,
        typer.Option(
            metavar="suite|user|attempt",
            help="Print the resources used by attempts instead, by suite, user or attempt.",
            autocompletion=one_of("suite", "user", "attempt"),
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON and nothing else; with --watch, a line per change.")
    ] = False,
) -> None:
    """Count the trials by state, after updating the database from the run directories on this machine."""
    from dropbench.jobs.queue.reconcile import refresh
    from dropbench.jobs.queue.status import explain_waiting, print_usage, read_status, render
    from dropbench.jobs.queue.watch import watch as watch_trials

    if watch and usage is not None:
        raise InputError("--usage: expected no --watch")
    with _open_store() as (store, settings):
        queued = watch_trials(store, settings, as_json=as_json) if watch else 0
        if not watch:
            refresh(store, settings)
        if usage is not None:
            print_usage(store, usage, as_json=as_json)
            return
        counts = read_status(store, settings)
    if not watch:
        typer.echo(json.dumps(counts.to_json()) if as_json else render(counts))
        for line in counts.damaged:
            typer.echo(f"damaged: {line}", err=True)
    elif queued:
        lines = [f"{count_of(queued, 'trial')} queued without workers: {RUN_THEM}.", *explain_waiting(counts.reasons)]
        typer.echo("\n".join(lines), err=as_json)


@app.command(epilog=examples("logs 3fa9", "logs 3fa9 --follow"))
def logs(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A trial's id, or its beginning.", autocompletion=complete_run)
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the trial ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the attempts and the log as JSON.")] = False,
) -> None:
    """Print the log of a trial, with all its attempts."""
    from dropbench.harness.runs.run_directory import Runs

    directory = Runs(Settings.from_environment().runs).find(id)
    if as_json:
        if follow:
            raise InputError("--json: prints the whole log once: expected no --follow")
        with _open_log(directory) as file:
            content = {"id": directory.id, "attempts": directory.attempts(), "log": file.read()}
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    position = 0
    running = True
    while running:
        running = follow and directory.locked()
        try:
            with _open_log(directory) as file:
                file.seek(position)
                shutil.copyfileobj(file, sys.stdout)
                position = file.tell()
        except InputError:
            if not running:
                raise
        sys.stdout.flush()
        if running:
            time.sleep(LOG_POLL_INTERVAL_S)


def _open_log(directory: RunDirectory) -> TextIOWrapper:
    try:
        return TextIOWrapper(open_regular(directory.path / "log.txt"), "utf-8", errors="replace")
    except FileNotFoundError:
        raise InputError(f"{directory.id}: no log yet: the trial has not started") from None


@app.command(epilog=examples("cancel running", "cancel dropkey/table1 regularizer=dropkey 'ratio>0.5'"))
def cancel(words: Filter, as_json: Json = False) -> None:
    """Cancel trials; running ones write a checkpoint and stop. `retry` resumes them from there."""
    from dropbench.jobs.queue.operations import cancel as cancel_trials
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.queue.status import explain_no_match

    with _open_store() as (store, settings):
        collect(store, settings)
        ids = store.find(" ".join(words))
        done = cancel_trials(store, settings, ids)
        if as_json:
            typer.echo(json.dumps(asdict(done)))
            return
        if not done.cancelled and not done.stopping:
            typer.echo(explain_no_match(store, ids, words, "queued, submitted or running"))
            return
    stopping = f"{len(done.stopping)} running will stop after the current step"
    typer.echo(f"Cancelled {count_of(len(done.cancelled), 'trial')}; {stopping}.")


@app.command(epilog=examples("retry failed", "retry dropkey/table1 not cancelled"))
def retry(words: Filter, as_json: Json = False) -> None:
    """Requeue failed and cancelled trials; each resumes from its last checkpoint."""
    from dropbench.jobs.queue.operations import retry as retry_trials
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.queue.status import explain_no_match

    with _open_store() as (store, settings):
        collect(store, settings)
        ids = store.find(" ".join(words))
        requeued, stale = retry_trials(store, settings, ids)
        if as_json:
            typer.echo(json.dumps({"requeued": requeued, "outdated": stale}))
            return
        for note, count in Counter(stale.values()).items():
            typer.echo(f"Not requeued: {count_of(count, 'trial')} {note}: enqueue them again.", err=True)
        if not requeued:
            if not stale:
                typer.echo(explain_no_match(store, ids, words, "failed or cancelled"))
            return
    typer.echo(f"Requeued {count_of(len(requeued), 'trial')}: {RUN_THEM}.")


@app.command(epilog=examples("gc --dry-run", "gc dropkey/table1 --older-than 7 --weights"))
def gc(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILTER",
            help="Only the run directories of these trials.",
            autocompletion=complete_filter,
        ),
    ] = None,
    older_than: Annotated[
        float, typer.Option(min=0, max=1e9, metavar="DAYS", help="Minimum age of checkpoints and job logs to delete.")
    ] = 30.0,
    weights: Annotated[
        bool, typer.Option("--weights", help="Also delete trained weights, which `dropbench analyze` needs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be freed.")] = False,
    as_json: Json = False,
) -> None:
    """Free disk space: checkpoints of abandoned trials, and leftover files of killed processes and ended jobs."""
    from dropbench.jobs.cleanup.gc import gc as collect_garbage

    with _open_store() as (store, settings):
        ids = store.find(" ".join(words)) if words else None
        freed = collect_garbage(store, settings, ids, days=older_than, weights=weights, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps(freed.to_json()))
        return
    for line in freed.left_out:
        typer.echo(f"not deleted: {line}", err=True)
    typer.echo(freed.render())
