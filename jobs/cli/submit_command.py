"""The command that hands queued trials to workers: `dropbench submit`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.db.cli.output import Json
from dropbench.harness.cli.completion import one_of
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.option_groups import GroupedCommand
from dropbench.harness.errors import InputError
from dropbench.jobs.cli.options import RunOptions, complete_profile, with_run_options
from dropbench.jobs.cli.run_commands import describe, describe_remaining, enqueue_suites, only_json

app = typer.Typer(add_completion=False)


@app.command(
    cls=GroupedCommand,
    epilog=examples(
        "submit dropkey/table1 --seeds 3 --executor slurm",
        "submit --parallel 2 --dry-run",
        "submit preset=paper --executor slurm --profile a100 --probe",
        "submit preset=paper --executor slurm --profile a100 --parallel 16",
    ),
)
@with_run_options("task", "sweep", "search")
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
            autocompletion=complete_profile,
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum workers; on SLURM: per array."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be submitted, and submit nothing.")
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="On SLURM: train 30 steps of one trial of each kind whose GPU-hours are unknown, only."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Submit queued trials to workers and return at once; no process needs to keep running here.

    The trials of a SUITE are enqueued first, as by `dropbench enqueue`; so they are with --dry-run.
    """
    from dropbench.db.store.store import open_store
    from dropbench.jobs.queue.reconcile import collect
    from dropbench.jobs.slurm.profile import FILE, load_profile
    from dropbench.jobs.submission.cost import estimate
    from dropbench.jobs.submission.submit import describe_defaults, group_by_profile, preview, probes
    from dropbench.jobs.submission.submit import submit as submit_trials

    plan = options.plan(executor, parallel, ("local", "slurm", "debug"))
    settings = replace(options.settings(here=executor != "slurm"), probe=probe)
    if probe and executor != "slurm":
        raise InputError(f"--probe: it measures the cost of a cluster's GPUs: expected no --executor {executor}")
    if profile is not None:
        load_profile(profile)  # before anything is queued
    suites = _suites_to_enqueue(words or [], options)
    listed: list[dict[str, Any]] = []
    with open_store(settings.database) as store:
        collect(store, settings)
        if suites:
            enqueued, remaining = enqueue_suites(store, settings, suites, options)
            requested = {id for listed in vars(enqueued).values() for id in listed}
            ids = [id for id in store.find("queued") if id in requested]
            lines = [describe(enqueued), *describe_remaining(remaining, "submit")]
            typer.echo("\n".join(lines), err=as_json)
        else:
            ids = store.find(" ".join(["queued", *(words or [])]))
        groups = list(group_by_profile(store, ids, plan, profile))
        if settings.device == "cuda" and any(plan.profile and not plan.profile.gpus for _, plan in groups):
            raise InputError(f"--device cuda: the cluster profile requests no GPU: set `gpus` in {FILE}")
        if not groups and not as_json:
            typer.echo("Nothing is queued: run `dropbench enqueue SUITE` or `dropbench retry failed`.")
        if probe:
            groups = probes(store, groups)
            if not groups and not as_json:
                typer.echo("Nothing to probe: the GPU-hours of all queued trials are known, or no GPU is requested.")
        for group, plan in groups:
            cost = estimate(store, group, plan.profile) if plan.profile is not None and not probe else None
            costs = {} if cost is None else {"cost": cost.to_json()}
            if dry_run:
                text = preview(settings, group, plan, cost)
                listed.append({"executor": executor, "trials": len(group), "preview": text, **costs})
            else:
                if cost is not None:
                    typer.echo("\n".join(cost.lines()), err=as_json)
                with only_json(as_json):
                    done = submit_trials(store, settings, group, plan)
                for note in done.notes:
                    typer.echo(note, err=True)
                text = done.render()
                listed.append({**done.to_json(), **costs})
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
        given |= {"preset": options.preset, "set": options.overrides, "weights": options.weights}
        given["keep-weights"] = options.keep_weights
        if option := next(filter(given.get, given), None):
            raise InputError(f"--{option}: expected a SUITE to enqueue; or a filter of what is queued")
        if name := next((item for item in options.data or () if "=" not in item), None):
            raise InputError(f"--data {name}: expected NAME=PATH, or a SUITE to enqueue")
    return suites
