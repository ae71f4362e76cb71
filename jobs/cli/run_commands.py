"""The commands that enqueue and start trials: `dropbench run`, `enqueue`, `submit`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.cli.completion import complete_filter
from db.cli.output import Json, With
from harness.cli.completion import Item, complete_suite, completer, one_of
from harness.cli.examples import examples
from harness.cli.option_groups import GroupedCommand
from harness.errors import InputError, count_of
from jobs.cli.options import RuntimeOptions, TrialOptions, expand_options, make_plan, runtime_settings

if TYPE_CHECKING:
    from db.store.store import Enqueued, Store
    from harness.settings import Settings
    from jobs.queue.run_loop import RunSummary

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
        with _only_json(as_json):
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
        enqueued, remaining = _enqueue(store, settings, suites or [], options)
        queued = store.counts([*enqueued.added, *enqueued.present])["queued"]
        reasons = [row.reason for row in store.states(enqueued.skipped).values()]
    if as_json:
        typer.echo(json.dumps({**asdict(enqueued), "unasked": remaining}))
        return
    lines = [f"{_describe(enqueued)} {queued} queued; run `dropbench submit`.", *explain_skipped(reasons)]
    typer.echo("\n".join([*lines, *_describe_remaining(remaining, "enqueue")]))


def _enqueue(store: Store, settings: Settings, suites: list[str], options: TrialOptions) -> tuple[Enqueued, int]:
    """Enqueue the trials of suites, or of one configuration if there are none, and the next candidates of searches.

    Return the ids, and the number of candidates of searches that are still to come.
    """
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
    return searches.enqueued, searches.remaining


def _describe(enqueued: Enqueued) -> str:
    return f"Added {count_of(len(enqueued.added), 'trial')} ({len(enqueued.present)} already present)."


def _describe_remaining(remaining: int, command: str) -> list[str]:
    """Return a line on the candidates of searches that depend on the results of the enqueued ones, if there are any."""
    again = f"run the same `dropbench {command}` again when these trials are done."
    return [f"{count_of(remaining, 'candidate')} of searches remaining: {again}"] if remaining else []


def _profiles(word: str) -> list[Item]:
    from jobs.slurm.profile import load_profiles

    return [(name, "") for name in load_profiles()]


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


def _only_json(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Send what a trial in this process prints to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


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
