"""The commands on what is queued: `dropbench status`, `watch`, `logs`, `cancel`, `retry`, `collect`, `gc`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from db.printing import Json

app = typer.Typer(no_args_is_help=True)

Filter = Annotated[
    list[str],
    typer.Argument(
        metavar="FILTER…",
        help="Words that must all hold: a suite, a state, an id's beginning, KEY=VALUE, 'KEY<VALUE', not WORD.",
    ),
]


@app.command()
def status(
    usage: Annotated[bool, typer.Option("--usage", help="What the attempts cost, as far as collected.")] = False,
    by: Annotated[str, typer.Option(help="With --usage: suite, user or attempt.")] = "suite",
    as_json: Json = False,
) -> None:
    """Count the trials by state. Looks at the run directories of active trials, and changes nothing."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.status import look_at, render, show_usage

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        if usage:
            show_usage(store, by, as_json=as_json)
            return
        found = look_at(store, settings)
    typer.echo(json.dumps(found.to_json()) if as_json else render(found))


@app.command()
def watch(
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two looks.")] = 2.0,
) -> None:
    """Follow the trials until nothing is active any more, and keep the database up to date meanwhile."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.status import follow

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        left = follow(store, settings, interval)
    if left:
        typer.echo(f"{left} trials are queued, and nobody works on them: dropbench submit, or dropbench run SUITE")


@app.command()
def logs(
    id: Annotated[str, typer.Argument(metavar="ID", help="A trial's id, or its beginning.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial ends.")] = False,
) -> None:
    """Show what a trial printed, all its attempts."""
    from harness.settings import Settings
    from jobs.logs import find_directory, show

    settings = Settings.from_environment()
    show(find_directory(settings, id), sys.stdout, follow=follow)


@app.command()
def cancel(words: Filter) -> None:
    """Take trials out of the queue; running ones write a checkpoint and stop. `retry` goes on from there."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.queue import cancel as cancel_trials
    from jobs.status import explain_nothing

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        ids = store.find(" ".join(words))
        done = cancel_trials(store, settings, ids)
        if not done.waiting and not done.stopping:
            typer.echo(explain_nothing(store, ids, words, "queued, submitted or running"))
            return
    typer.echo(f"{len(done.waiting)} trials are cancelled, {len(done.stopping)} running ones stop after this step")


@app.command()
def retry(words: Filter) -> None:
    """Queue failed and cancelled trials again; each goes on from its last checkpoint."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.collect import collect
    from jobs.queue import retry as retry_trials
    from jobs.status import explain_nothing

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        collect(store, settings)
        ids = store.find(" ".join(words))
        again = retry_trials(store, settings, ids)
        if not again:
            typer.echo(explain_nothing(store, ids, words, "failed or cancelled"))
            return
    typer.echo(f"{len(again)} trials are queued again, for: dropbench submit, or dropbench run SUITE")


@app.command()
def collect(as_json: Json = False) -> None:
    """Bring the database up to date with the run directories."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.collect import collect as collect_all

    settings = Settings.from_environment()
    with open_store(settings.database) as store:
        changed = collect_all(store, settings, thorough=True)
    if as_json:
        typer.echo(json.dumps(changed))
        return
    for id, state in changed.items():
        typer.echo(f"{id} {state}")
    typer.echo(f"{len(changed)} trials changed their state")


@app.command()
def gc(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER…]", help="Only the run directories of these trials.")
    ] = None,
    older_than: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="Age of checkpoints and of jobs' logs that may go.")
    ] = 30.0,
    weights: Annotated[
        bool, typer.Option("--weights", help="Trained weights, too: `analyze` works no more on what succeeded.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")] = False,
    as_json: Json = False,
) -> None:
    """Free disk space: checkpoints of trials that were given up, and what killed processes and ended jobs left."""
    from db.store import open_store
    from harness.settings import Settings
    from jobs.gc import gc as free

    settings = Settings.from_environment()
    with open_store(settings.database, create=False) as store:
        ids = store.find(" ".join(words)) if words else None
        freed = free(store, settings, ids, days=older_than, weights=weights, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps(freed.to_json()))
        return
    for line in freed.left_out:
        typer.echo(f"left out: {line}", err=True)
    typer.echo(freed.render())
