"""The commands that enqueue and start trials: `dropbench run`, `enqueue`, `submit`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json, With
from harness.cli.completion import Item, complete_suite, completer, one_of
from harness.cli.examples import examples
from harness.errors import InputError, count_of, unknown_name
from jobs.cli.options import Data, RuntimeOptions, TrialOptions, expand_options

if TYPE_CHECKING:
    from harness.settings import Settings
    from jobs.queue.request import Requested
    from jobs.queue.run_loop import RunSummary
    from jobs.submission.dispatch import Plan

app = typer.Typer(no_args_is_help=True)


def _profiles(word: str) -> list[Item]:
    from jobs.slurm.profile import profile_names

    return [(name, "") for name in profile_names()]


@app.command(
    epilog=examples(
        "run quickstart",
        "run dropkey/table1 --data cifar100 --seeds 3 --set steps=200",
        "run quickstart --regularizer dropkey:ratio=0.2,schedule=increasing",
        "run --task image-classification --data digits --model vit-digits",
    )
)
@expand_options()
def run(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="[SUITE]", help="A suite, or your own .yaml file.", autocompletion=complete_suite),
    ] = None,
    *,
    options: TrialOptions,
    parallel: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum workers; default: GPUs, else cores.")
    ] = None,
    executor: Annotated[
        str,
        typer.Option(help="local: background workers; debug: this process.", autocompletion=one_of("local", "debug")),
    ] = "local",
    beside: With = None,
    runtime: RuntimeOptions,
    as_json: Json = False,
) -> None:
    """Train a suite or one configuration on this machine, and print its table. Finished trials are not repeated."""
    from db.reference.merge import opened_with
    from db.report.formats.listing import print_trials
    from db.report.view.requests import look_up
    from db.schema.reference import ORIGINS, stored_id
    from db.store.store import open_store
    from jobs.cli.suite_analysis import show_table
    from jobs.cli.trial_request import resolve_request
    from jobs.queue.run_loop import run as run_trials

    plan = make_plan(executor, parallel, ("local", "debug"), threads=runtime.threads, device=runtime.device)
    settings = runtime_settings(runtime, options.data, executor)
    requested = resolve_request(suite, options, settings)
    left_out = _in_reference(requested, beside) if beside is not None else frozenset()
    with open_store(settings.database) as store:
        with _only_json(as_json):
            summary = run_trials(store, settings, requested, plan, left_out=left_out)
        trials = count_of(len(summary.rows), "trial")
        if summary.interrupted:
            done, command = len(summary.in_states("succeeded")), shlex.join(["dropbench", *sys.argv[1:]])
            typer.echo(f"Stopped: {done} of {trials} done. Resume with `{command}`", err=True)
            raise typer.Exit(130)
        if not summary.trained:
            skipped = f" or skipped ({count})" if (count := len(summary.in_states("skipped"))) else ""
            typer.echo(f"nothing to train: {trials} already done{skipped}", err=True)
        complete = True
        with opened_with(store, beside) as tables:
            if suite is None:
                shown = [stored_id(id, origin) for id in requested.trials for origin in ORIGINS]
                print_trials(shown, tables, as_json=as_json)
            elif table := look_up(tables, request=summary.request.id):
                complete = show_table(table, settings, tables, store, as_json=as_json)
    typer.echo(f"results: {settings.database} (`dropbench results`); run directories: {settings.runs}", err=True)
    failures = failure_lines(summary, f"dropbench retry {summary.request.suite.name or 'failed'}")
    typer.echo("".join(f"{line}\n" for line in failures), nl=False, err=True)
    raise typer.Exit(bool(failures) or not complete)


def _in_reference(requested: Requested, location: str) -> frozenset[str]:
    """Return the ids of the requested trials that a reference has, and report their number."""
    from db.reference.load import open_reference

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


@app.command(epilog=examples("enqueue quickstart", "enqueue dropkey/table1 dropkey/table2 --preset paper --seeds 3"))
@expand_options("task", "schedule")
def enqueue(
    suites: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE…", help="Suites by name, or your own .yaml files.", autocompletion=complete_suite
        ),
    ],
    options: TrialOptions,
    as_json: Json = False,
) -> None:
    """Enqueue the trials of suites for `dropbench submit`; of a search, its next candidates."""
    from db.store.store import Enqueued, open_store
    from jobs.cli.trial_request import resolve_request
    from jobs.queue.reconcile import collect
    from jobs.queue.search import Searches
    from jobs.queue.status import explain_skipped

    settings = RuntimeOptions().to_settings(options.data)
    requests = [resolve_request(name, options, settings) for name in suites]
    enqueued, remaining = Enqueued([], [], []), 0
    with open_store(settings.database) as store:
        for searches in [Searches(store, settings, requested) for requested in requests]:
            searches.start()
            if searches.searched:
                collect(store, settings)
                searches.ask()
            for name, ids in vars(searches.enqueued).items():
                getattr(enqueued, name).extend(ids)
            remaining += searches.remaining
        queued = store.counts([*enqueued.added, *enqueued.present])["queued"]
        reasons = [row.reason for row in store.states(enqueued.skipped).values()]
    if as_json:
        typer.echo(json.dumps({**asdict(enqueued), "unasked": remaining}))
        return
    counts = f"Added {count_of(len(enqueued.added), 'trial')} ({len(enqueued.present)} already present)"
    typer.echo("\n".join([f"{counts}. {queued} queued; run `dropbench submit`.", *explain_skipped(reasons)]))
    if remaining:
        typer.echo(
            f"{count_of(remaining, 'candidate')} of searches remaining: "
            "run the same `dropbench enqueue` again when these trials are done."
        )


@app.command(
    epilog=examples(
        "submit --parallel 2",
        "submit --executor slurm --dry-run",
        "submit preset=paper --executor slurm --profile a100 --parallel 16",
    )
)
@expand_options()
def submit(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILTER…]", help="Only queued trials that match.", autocompletion=complete_filter),
    ] = None,
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
        typer.Option("--parallel", "--max-parallel", min=1, metavar="N", help="Maximum workers; on SLURM: per array."),
    ] = None,
    trials_per_job: Annotated[
        int, typer.Option(min=1, max=10**9, metavar="N", help="On a cluster: trials per job, one after another.")
    ] = 1,
    *,
    runtime: RuntimeOptions,
    data: Data = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be submitted.")] = False,
    as_json: Json = False,
) -> None:
    """Submit queued trials to workers and return at once; no process needs to keep running here."""
    from db.store.store import open_store
    from jobs.queue.reconcile import collect
    from jobs.slurm.profile import FILE
    from jobs.submission.submit import describe_defaults, group_by_profile, preview
    from jobs.submission.submit import submit as submit_trials

    plan = make_plan(
        executor,
        parallel,
        ("local", "slurm", "debug"),
        threads=runtime.threads,
        device=runtime.device,
        trials_per_job=trials_per_job,
    )
    settings = runtime_settings(runtime, data, executor)
    listed: list[dict[str, Any]] = []
    with open_store(settings.database) as store:
        if not dry_run:
            collect(store, settings)
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
                text = done.render()
                listed.append(done.to_json())
            if not as_json:
                typer.echo(text)
    if groups and groups[0][1].profile and profile is None and not FILE.exists():
        typer.echo(describe_defaults(groups[0][1].profile), err=True)
    if as_json:
        typer.echo(json.dumps(listed, ensure_ascii=False))


def _only_json(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Send what a trial in this process prints to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def runtime_settings(runtime: RuntimeOptions, data: list[str] | None, executor: str) -> Settings:
    """Return the settings, checked against this machine unless trials run on a cluster, where each checks its node."""
    settings = runtime.to_settings(data)
    if executor != "slurm" and (settings.device == "cuda" or settings.backend != "auto"):
        from harness.attention.backends import check_backend

        check_backend(settings.backend, cuda=settings.uses_cuda())
    return settings


def make_plan(
    executor: str,
    parallel: int | None,
    executors: tuple[str, ...],
    *,
    threads: int | None = None,
    device: str = "auto",
    trials_per_job: int = 1,
) -> Plan:
    """Return the workers and the CPU threads of each.

    The default number of threads does not depend on that of the workers: on a CPU, it changes the last digits. With
    GPUs it does, because threads only prepare the data.
    """
    from jobs.submission.dispatch import Plan, local_devices

    if executor not in executors:
        raise unknown_name("executor", executor, executors)
    if executor == "slurm":
        if threads is not None:
            raise InputError("--threads: not with --executor slurm: set `cpus` in the cluster profile")
        return Plan(executor, throttle=parallel, trials_per_job=trials_per_job)
    cores, gpus = len(os.sched_getaffinity(0)), len(local_devices(device))
    workers = parallel or gpus or max(1, cores // (threads or 1))
    return Plan(executor, workers, threads or (max(1, cores // workers) if gpus else 1))


def failure_lines(summary: RunSummary, retry: str) -> list[str]:
    """Return one line per cause of failed trials, and one with the next command, `retry`; none if no trial failed."""
    from db.tuning.select import is_pruned

    rows = [row for row in summary.in_states("failed", "cancelled") if not is_pruned(row)]
    causes: dict[str, list[str]] = {}
    for row in rows:
        causes.setdefault(f"{row.state}: {row.reason or 'cause unknown'}", []).append(row.id)
    lines = []
    for cause, ids in causes.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        lines.append(f"{ids[0]}{more} {cause}; see `dropbench logs {ids[0]}`")
    lost = f"{len(rows)} of {count_of(len(summary.rows), 'trial')} failed or cancelled"
    return [*lines, f"{lost}: run `{retry}`, then this command again."] if rows else []
