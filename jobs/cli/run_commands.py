"""The commands `dropbench run` and `enqueue`, and what they share with `submit`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from db.cli.output import Json, With
from harness.cli.completion import complete_suite, one_of
from harness.cli.examples import examples
from harness.cli.option_groups import GroupedCommand
from harness.errors import InputError, count_of, unknown_name
from jobs.cli.options import RuntimeOptions, TrialOptions, expand_options

if TYPE_CHECKING:
    from db.store.store import Enqueued, Store
    from harness.settings import Settings
    from jobs.queue.run_loop import RunSummary
    from jobs.queue.search import Searches
    from jobs.submission.dispatch import Plan

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
@expand_options("fingerprint")
def run(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="A suite, or your own .yaml file.", autocompletion=complete_suite),
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
    from db.schema.reference import ORIGINS, stored_id
    from db.store.store import open_store
    from jobs.cli.last_request import remember_request
    from jobs.cli.reference_trials import without_reference
    from jobs.cli.suite_analysis import show_suite
    from jobs.cli.trial_request import resolve_request
    from jobs.queue.run_loop import run as run_trials

    plan = make_plan(executor, parallel, ("local", "debug"), threads=runtime.threads, device=runtime.device)
    settings = runtime_settings(runtime, options.data, executor)
    request = resolve_request(suite, options, settings)
    shown = [stored_id(trial.id, origin) for trial, _ in request.items for origin in ORIGINS]
    if beside is not None:
        request, line = without_reference(request, settings, beside)
        typer.echo(line, err=True)
    with open_store(settings.database) as store:
        with only_json(as_json):
            summary = run_trials(
                store, settings, request.items, plan, request.searched,
                on_enqueued=partial(remember_request, settings, [suite] if suite else [], options),
            )  # fmt: skip
        trials = count_of(len(summary.rows), "trial")
        if summary.interrupted:
            done, command = len(summary.in_states("succeeded")), shlex.join(["dropbench", *sys.argv[1:]])
            typer.echo(f"Stopped: {done} of {trials} done. Resume with `{command}`", err=True)
            raise typer.Exit(130)
        if not summary.trained:
            skipped = f" or skipped ({count})" if (count := len(summary.in_states("skipped"))) else ""
            typer.echo(f"nothing to train: {trials} already done{skipped}", err=True)
        if request.suite is None:
            with opened_with(store, beside) as tables:
                print_trials(shown, tables, as_json=as_json)
    complete = request.suite is None or show_suite(
        request.suite, request.choice, settings, as_json=as_json, beside=beside
    )
    typer.echo(f"results: {settings.database} (`dropbench results`); run directories: {settings.runs}", err=True)
    failures = failure_lines(summary, f"dropbench retry {request.suite.name if request.suite else 'failed'}")
    typer.echo("".join(f"{line}\n" for line in failures), nl=False, err=True)
    raise typer.Exit(bool(failures) or not complete)


@app.command(
    cls=GroupedCommand,
    epilog=examples("enqueue quickstart", "enqueue dropkey/table1 dropkey/table2 --preset paper --seeds 3"),
)
@expand_options("fingerprint")
def enqueue(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="Suites by name, or your own .yaml files.", autocompletion=complete_suite),
    ] = None,
    *,
    options: TrialOptions,
    as_json: Json = False,
) -> None:
    """Enqueue the trials of suites or of one configuration for `dropbench submit`; of a search, its next candidates."""
    from db.store.store import open_store
    from jobs.queue.status import explain_skipped

    settings = RuntimeOptions().to_settings(options.data)
    with open_store(settings.database) as store:
        searches = enqueue_request(store, settings, suites or [], options)
        enqueued = searches.enqueued
        queued = store.counts([*enqueued.added, *enqueued.present])["queued"]
        reasons = [row.reason for row in store.states(enqueued.skipped).values()]
    if as_json:
        typer.echo(json.dumps({**asdict(enqueued), "unasked": searches.remaining}))
        return
    lines = [f"{describe_enqueued(enqueued)} {queued} queued; run `dropbench submit`.", *explain_skipped(reasons)]
    typer.echo("\n".join([*lines, *describe_remaining(searches, "enqueue")]))


def enqueue_request(store: Store, settings: Settings, suites: list[str], options: TrialOptions) -> Searches:
    """Enqueue the trials of suites, or of one configuration if there are none, and the next candidates of searches."""
    from jobs.cli.last_request import remember_request
    from jobs.cli.trial_request import resolve_request
    from jobs.queue.reconcile import collect
    from jobs.queue.search import Searches

    names: list[str | None] = [*suites] or [None]
    requests = [resolve_request(name, options, settings) for name in names]
    items = [item for request in requests for item in request.items]
    searched = [cell for request in requests for cell in request.searched]
    searches = Searches(store, settings, searched, {trial.id for trial, _ in items})
    searches.enqueue(items)
    remember_request(settings, suites, options)
    if searched:
        collect(store, settings)
        searches.ask()
    return searches


def describe_enqueued(enqueued: Enqueued) -> str:
    """Return a sentence with the numbers of new and present trials."""
    return f"Added {count_of(len(enqueued.added), 'trial')} ({len(enqueued.present)} already present)."


def describe_remaining(searches: Searches, command: str) -> list[str]:
    """Return a line on the candidates of searches that depend on the results of the enqueued ones, if there are any."""
    if not searches.remaining:
        return []
    remaining = f"{count_of(searches.remaining, 'candidate')} of searches remaining"
    return [f"{remaining}: run the same `dropbench {command}` again when these trials are done."]


def only_json(as_json: bool) -> contextlib.AbstractContextManager[object]:
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
        return Plan(executor, throttle=parallel)
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
