"""The command `dropbench submit`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json
from harness.cli.completion import Item, completer, one_of
from harness.cli.examples import examples
from harness.cli.option_groups import GroupedCommand
from harness.errors import InputError
from jobs.cli.options import RuntimeOptions, TrialOptions, expand_options
from jobs.cli.run_commands import (
    describe_enqueued,
    describe_remaining,
    enqueue_request,
    make_plan,
    only_json,
    runtime_settings,
)

app = typer.Typer(no_args_is_help=True, add_completion=False)


def _profiles(word: str) -> list[Item]:
    from jobs.slurm.profile import profile_names

    return [(name, "") for name in profile_names()]


@app.command(
    cls=GroupedCommand,
    epilog=examples(
        "submit dropkey/table1 --seeds 3 --executor slurm",
        "submit --parallel 2 --dry-run",
        "submit preset=paper --executor slurm --profile a100 --parallel 16",
    ),
)
@expand_options("task", "weights", "sweep", "search", "fingerprint")
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
    options: TrialOptions,
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
    runtime: RuntimeOptions,
    as_json: Json = False,
) -> None:
    """Submit queued trials to workers and return at once; no process needs to keep running here.

    The trials of a SUITE are enqueued first, as by `dropbench enqueue`; so they are with --dry-run.
    """
    from db.store.store import open_store
    from jobs.queue.reconcile import collect
    from jobs.slurm.profile import FILE
    from jobs.submission.submit import describe_defaults, group_by_profile, preview
    from jobs.submission.submit import submit as submit_trials

    plan = make_plan(executor, parallel, ("local", "slurm", "debug"), threads=runtime.threads, device=runtime.device)
    settings = runtime_settings(runtime, options.data, executor)
    suites = _suites_to_enqueue(words or [], options)
    listed: list[dict[str, Any]] = []
    with open_store(settings.database) as store:
        if not dry_run:
            collect(store, settings)
        if suites:
            searches = enqueue_request(store, settings, suites, options)
            requested = {id for ids in vars(searches.enqueued).values() for id in ids}
            ids = [id for id in store.find("queued") if id in requested]
            lines = [describe_enqueued(searches.enqueued), *describe_remaining(searches, "submit")]
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
                with only_json(as_json):
                    done = submit_trials(store, settings, group, plan)
                text = done.render()
                listed.append(done.to_json())
            if not as_json:
                typer.echo(text)
    if groups and groups[0][1].profile and profile is None and not FILE.exists():
        typer.echo(describe_defaults(groups[0][1].profile), err=True)
    if as_json:
        typer.echo(json.dumps(listed, ensure_ascii=False))


def _suites_to_enqueue(words: list[str], options: TrialOptions) -> list[str]:
    """Return the suites among the words, none if they are a filter; raise InputError if they are mixed."""
    from harness.suites.suite import is_suite

    suites = [word for word in words if is_suite(word)]
    if suites and len(suites) < len(words):
        other = next(word for word in words if word not in suites)
        raise InputError(f"{other}: a SUITE is enqueued and submitted whole: write suite={suites[0]} as a filter")
    if not suites:
        for field, default in asdict(TrialOptions()).items():
            value = getattr(options, field)
            if field != "data" and value != default:
                option = "set" if field == "overrides" else field
                raise InputError(f"--{option}: expected a SUITE to enqueue; or a filter of what is queued")
        if name := next((item for item in options.data or () if "=" not in item), None):
            raise InputError(f"--data {name}: expected NAME=PATH, or a SUITE to enqueue")
    return suites
