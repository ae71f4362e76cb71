"""The commands that enqueue and start trials: `dropbench run`, `enqueue`, `submit`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.db.cli.output import Json, With
from dropbench.harness.cli.completion import Item, complete_suite, completer, one_of
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.option_groups import GroupedCommand
from dropbench.harness.errors import InputError, count_of
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
    left_out = _in_reference(requested, beside) if beside is not None else frozenset()
    with open_store(settings.database) as store:
        with _only_json(as_json):
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
    typer.echo(f"results: {name} (`dropbench results`); run directories: {settings.runs}", err=True)
    failures = summary.failures()
    typer.echo("".join(f"{line}\n" for line in failures), nl=False, err=True)
    raise typer.Exit(bool(failures) or not complete)


def _print_results(request: Request, settings: Settings, tables: Store, own: Store, *, as_json: bool) -> bool:
    """Print the table of a suite, or the results of one configuration; return whether all analyses were successful."""
    if not request.suite.name:
        from dropbench.db.report.formats.listing import print_trials
        from dropbench.db.schema.reference import ORIGINS, stored_id

        shown = [stored_id(id, origin) for id in request.trials for origin in ORIGINS]
        print_trials(shown, tables, as_json=as_json)
        return True
    from dropbench.db.report.view.requests import look_up
    from dropbench.jobs.cli.suite_analysis import show_table

    table = look_up(tables, request=request.id)
    return table is None or show_table(table, settings, tables, own, as_json=as_json)


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
        enqueued, remaining = _enqueue(store, settings, suites or [], options)
        queued = store.counts([*enqueued.added, *enqueued.present])["queued"]
        reasons = [row.reason for row in store.states(enqueued.skipped).values()]
    if as_json:
        typer.echo(json.dumps({**asdict(enqueued), "unasked": remaining}))
        return
    lines = [f"{_describe(enqueued)} {queued} queued; run `dropbench submit`.", *explain_skipped(reasons)]
    typer.echo("\n".join([*lines, *_describe_remaining(remaining, "enqueue")]))


def _enqueue(store: Store, settings: Settings, suites: list[str], options: RunOptions) -> tuple[Enqueued, int]:
    """Enqueue the trials of suites, or of one configuration if there are none, and the next candidates of searches.

    Return the ids, and the number of candidates of searches that are still to come.
    """
    from dropbench.db.store.store import Enqueued
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.queue.search import Searches

    enqueued, remaining = Enqueued([], [], []), 0
    names: list[str | None] = [*suites] or [None]
    for requested in [options.requested(name, settings) for name in names]:
        searches = Searches(store, settings, requested)
        searches.start()
        if searches.searched:
            collect(store, settings)
            searches.ask()
        for name, ids in vars(searches.enqueued).items():
            getattr(enqueued, name).extend(ids)
        remaining += searches.remaining
    return enqueued, remaining


def _describe(enqueued: Enqueued) -> str:
    return f"Added {count_of(len(enqueued.added), 'trial')} ({len(enqueued.present)} already present)."


def _describe_remaining(remaining: int, command: str) -> list[str]:
    """Return a line on the candidates of searches that depend on the results of the enqueued ones, if there are any."""
    again = f"run the same `dropbench {command}` again when these trials are done."
    return [f"{count_of(remaining, 'candidate')} of searches remaining: {again}"] if remaining else []


def _profiles(word: str) -> list[Item]:
    from dropbench.jobs.slurm.profile import load_profiles

    return [(name, "") for name in load_profiles()]


@app.command(
    cls=GroupedCommand,
    epilog=examples(
        "submit dropkey/table1 --seeds 3 --executor slurm",
        "submit --parallel 2 --dry-run",
        "submit preset=paper --executor slurm --profile a100 --parallel 16",
    ),
)
@with_run_options("task", "weights", "sweep", "search", "gpus_per_trial")
def submit(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE|FILTER",
            help="Suites to enqueue first, or a filter of queued trials such as suite=NAME; default: all of them.",
            autocompletion=complete_filter,
        ),
    ] = None,
    *,
    options: RunOptions,
    executor: Annotated[
        str, typer.Option(help="local, slurm or debug.", autocompletion=one_of("local", "slurm", "debug"))
    ] = "local",
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A [profiles.NAME] of dropbench.toml; default: the first that matches a trial.",
            autocompletion=completer(_profiles),
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum workers; on SLURM: per array."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be submitted, and submit nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Submit queued trials to workers and return at once; no process needs to keep running here.

    The trials of a SUITE are enqueued first, as by `dropbench enqueue`; so they are with --dry-run.
    """
    from dropbench.db.store.store import open_store
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.slurm.profile import FILE
    from dropbench.jobs.submission.submit import describe_defaults, group_by_profile, preview
    from dropbench.jobs.submission.submit import submit as submit_trials

    plan = options.plan(executor, parallel, ("local", "slurm", "debug"))
    settings = options.settings(here=executor != "slurm")
    suites = _suites_to_enqueue(words or [], options)
    listed: list[dict[str, Any]] = []
    with open_store(settings.database) as store:
        if not dry_run:
            collect(store, settings)
        if suites:
            enqueued, remaining = _enqueue(store, settings, suites, options)
            requested = {id for listed in vars(enqueued).values() for id in listed}
            ids = [id for id in store.find("queued") if id in requested]
            lines = [_describe(enqueued), *_describe_remaining(remaining, "submit")]
            typer.echo("\n".join(lines), err=as_json)
        else:
            ids = store.find(" ".join(["queued", *(words or [])]))
        groups = list(group_by_profile(store, ids, plan, profile))
        if settings.device == "cuda" and any(plan.profile and not plan.profile.gpus for _, plan in groups):
            raise InputError(f"--device cuda: the cluster profile requests no GPU: set `gpus` in {FILE}")
        if not groups and not as_json:
            typer.echo("Nothing is queued: run `dropbench enqueue SUITE` or `dropbench retry failed`.")
        for group, plan in groups:
            if dry_run:
                text = preview(settings, group, plan)
                listed.append({"executor": executor, "trials": len(group), "preview": text})
            else:
                with _only_json(as_json):
                    done = submit_trials(store, settings, group, plan)
                for note in done.notes:
                    typer.echo(note, err=True)
                text = done.render()
                listed.append(done.to_json())
            if not as_json:
                typer.echo(text)
    if groups and groups[0][1].profile and profile is None and not FILE.exists():
        typer.echo(describe_defaults(groups[0][1].profile), err=True)
    if as_json:
        typer.echo(json.dumps(listed, ensure_ascii=False))


def _suites_to_enqueue(words: list[str], options: RunOptions) -> list[str]:
    """Return the suites among the words, none if they are a filter; raise InputError if they are mixed."""
    from dropbench.harness.suites.suite import is_suite

    suites = [word for word in words if is_suite(word)]
    if suites and len(suites) < len(words):
        other = next(word for word in words if word not in suites)
        raise InputError(f"{other}: a SUITE is enqueued and submitted whole: write suite={suites[0]} as a filter")
    if not suites:
        given: dict[str, Any] = {"seeds": options.seeds, "model": options.model, "regularizer": options.regularizer}
        given |= {"preset": options.preset, "set": options.overrides}
        if option := next(filter(given.get, given), None):
            raise InputError(f"--{option}: expected a SUITE to enqueue; or a filter of what is queued")
        if name := next((item for item in options.data or () if "=" not in item), None):
            raise InputError(f"--data {name}: expected NAME=PATH, or a SUITE to enqueue")
    return suites


def _only_json(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Send what a trial in this process prints to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
