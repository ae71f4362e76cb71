"""The commands that start work: `dropbench run`, `enqueue`, `submit`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from db.printing import Json

if TYPE_CHECKING:
    from harness.settings import Settings
    from jobs.dispatch import Plan
    from jobs.run import Outcome

app = typer.Typer(no_args_is_help=True)

SuiteName = Annotated[str | None, typer.Argument(metavar="[SUITE]", help="A suite, or a .yaml file of your own.")]
Preset = Annotated[str, typer.Option(help="mini: hours on two cores at most; paper: as published.")]
Seeds = Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N-1; default: the preset's.")]
Data = Annotated[list[str] | None, typer.Option(metavar="NAME[=PATH]", help="Only these data sets; where one lies.")]
Model = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these models.")]
Spec = Annotated[list[str] | None, typer.Option(metavar="SPEC", help="One more row, such as dropkey:ratio=0.3.")]
Override = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another hyper-parameter.")]
Task = Annotated[str | None, typer.Option(metavar="NAME", help="The task, where no SUITE is named.")]
Schedule = Annotated[str | None, typer.Option(metavar="NAME", help="The ratio's schedule, where no SUITE is named.")]
Sweep = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUES", help="Choose by the dev score: ratio=0.1,0.2, window=1..3, set.lr=1e-4,1e-3."),
]
Search = Annotated[
    str | None, typer.Option(metavar="KEY=VALUE,…", help="How: sampler=tpe,candidates=20,pruner=median,seed=0,batch=4.")
]
Weights = Annotated[str | None, typer.Option(metavar="PATH", help="Initial weights: a file, or transformers' folder.")]
Parallel = Annotated[int | None, typer.Option(min=1, metavar="N", help="Workers at a time; default: GPUs, else cores.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Backend = Annotated[
    str | None, typer.Option(metavar="NAME", help="What computes attention that drops: auto, eager, cpu or triton.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile models by torch.compile first.")]
Every = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Time between two checkpoints.")]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Copy what trials report to tensorboard, wandb or mlflow."),
]


@app.command()
def run(
    suite: SuiteName = None,
    preset: Preset = "mini",
    seeds: Seeds = None,
    data: Data = None,
    model: Model = None,
    regularizer: Spec = None,
    overrides: Override = None,
    task: Task = None,
    schedule: Schedule = None,
    weights: Weights = None,
    sweep: Sweep = None,
    search: Search = None,
    parallel: Parallel = None,
    executor: Annotated[str, typer.Option(help="local: workers in the background; debug: in this process.")] = "local",
    device: Device = "auto",
    backend: Backend = None,
    compile: Compile = False,
    checkpoint_seconds: Every = 300.0,
    track: Track = None,
    as_json: Json = False,
) -> None:
    """Train a suite or one configuration here, and print its table. What is done already is not trained again."""
    from db.store import open_store
    from harness.registry import load
    from jobs.analyses import show_suite
    from jobs.request import Options, ask
    from jobs.run import run as run_trials

    plan = _plan(executor, parallel, ("local", "debug"))
    settings = _settings(data, device, checkpoint_seconds, track, backend, compile)
    options = Options(
        preset, seeds, data or (), model or (), regularizer or (), overrides or (), task, schedule, weights,
        sweep or (), search,
    )  # fmt: skip
    asked = ask(suite, options, settings)
    with open_store(settings.database) as store:
        outcome = run_trials(store, settings, asked.items, plan, asked.searched)
        if outcome.interrupted:
            done = len(outcome.of("succeeded"))
            _say(f"stopped: {done} of {len(outcome.rows)} trials are done; to go on: {_again()}")
            raise typer.Exit(130)
        if not outcome.trained:
            _say(f"nothing to train: all {len(outcome.rows)} trials are done")
        if asked.suite is None:
            load("db.report:print_trials")(asked.ids, store, as_json=as_json)
    whole = asked.suite is None or show_suite(asked.suite, asked.choice, settings, as_json=as_json)
    _say(f"results: {settings.database} (dropbench results), run directories: {settings.runs}")
    _report_failures(outcome)
    if not whole:
        raise typer.Exit(1)


@app.command()
def enqueue(
    suites: Annotated[list[str], typer.Argument(metavar="SUITE…", help="Suites by name, or .yaml files of your own.")],
    preset: Preset = "mini",
    seeds: Seeds = None,
    data: Data = None,
    model: Model = None,
    regularizer: Spec = None,
    overrides: Override = None,
    weights: Weights = None,
    sweep: Sweep = None,
    search: Search = None,
    as_json: Json = False,
) -> None:
    """Put the trials of suites into the queue, for `dropbench submit`; of a search its next candidates."""
    from db.store import open_store
    from jobs.collect import collect as collect_all
    from jobs.queue import enqueue as enqueue_trials
    from jobs.request import Options, ask
    from jobs.search import Searches

    settings = _settings(data)
    options = Options(
        preset, seeds, data or (), model or (), regularizer or (), overrides or (), weights=weights,
        sweep=sweep or (), search=search,
    )  # fmt: skip
    asked = [ask(name, options, settings) for name in suites]
    items = [item for one in asked for item in one.items]
    with open_store(settings.database) as store:
        searches = Searches(
            store, settings, [cell for one in asked for cell in one.searched], {trial.id for trial, _ in items}
        )
        found = enqueue_trials(store, settings, items)
        if searches.searched:
            collect_all(store, settings)
            searches.ask()
        added, present = [*found.added, *searches.added], [*found.present, *searches.present]
        waiting = store.counts([*added, *present])["queued"]
    if as_json:
        requeued = [*found.requeued, *searches.requeued]
        typer.echo(json.dumps({"added": added, "present": present, "requeued": requeued, "unasked": searches.unasked}))
        return
    typer.echo(f"{len(added)} trials are new, {len(present)} were there; {waiting} wait: dropbench submit")
    if searches.unasked:
        typer.echo(f"{searches.unasked} candidates are asked for when these are done: the same dropbench enqueue again")


@app.command()
def submit(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER…]", help="Only these of the queued trials.")
    ] = None,
    executor: Annotated[str, typer.Option(help="local, slurm or debug.")] = "local",
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Table [profiles.NAME] of dropbench.toml; default: the first that is for a trial."
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel", "--max-parallel", min=1, metavar="N", help="Workers at a time; on a cluster: of an array."
        ),
    ] = None,
    pack: Annotated[
        int, typer.Option("--trials-per-job", min=1, metavar="N", help="On a cluster: trials a job, one after another.")
    ] = 1,
    device: Device = "auto",
    backend: Backend = None,
    compile: Compile = False,
    checkpoint_seconds: Every = 300.0,
    track: Track = None,
    data: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="Where a data set lies.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be started.")] = False,
) -> None:
    """Hand queued trials to workers, and return at once; nothing needs to stay alive here."""
    from db.store import open_store
    from jobs.collect import collect
    from jobs.submit import by_profile, preview, submit_all

    plan = _plan(executor, parallel, ("local", "slurm", "debug"), pack)
    settings = _settings(data, device, checkpoint_seconds, track, backend, compile)
    with open_store(settings.database) as store:
        if not dry_run:
            collect(store, settings)
        ids = store.find(" ".join(["queued", *(words or [])]))
        groups = list(by_profile(store, ids, plan, profile))
        if not groups:
            typer.echo("nothing is queued: dropbench enqueue SUITE, or dropbench retry FILTER")
        for group, its in groups:
            typer.echo(preview(settings, group, its) if dry_run else submit_all(store, settings, group, its))


def _settings(
    data: list[str] | None = None,
    device: str = "auto",
    checkpoint_seconds: float = 300.0,
    track: list[str] | None = None,
    backend: str | None = None,
    compile: bool = False,
) -> Settings:
    from dataclasses import replace

    from harness.errors import unknown_name
    from harness.settings import Settings
    from harness.tracking import checked_trackers
    from jobs.request import with_folders

    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    asked = {"device": device, "checkpoint_seconds": checkpoint_seconds, "compile": compile}
    settings = Settings.from_environment(**asked, **({} if backend is None else {"backend": backend}))
    named = [name for text in track or () for name in text.split(",") if name]
    settings = replace(settings, trackers=checked_trackers([*settings.trackers, *named]))
    return with_folders(settings, data)[0] if data else settings


def _plan(executor: str, parallel: int | None, known: tuple[str, ...], pack: int = 1) -> Plan:
    from harness.errors import unknown_name
    from jobs.dispatch import Plan
    from jobs.machine import visible_devices

    if executor not in known:
        raise unknown_name("executor", executor, known)
    cores = len(os.sched_getaffinity(0))
    workers = parallel or len(visible_devices()) or cores
    threads = max(1, cores // workers)
    # Who shares the machine says so by OpenMP's own variable; a thread that waits for a busy core slows all others.
    if (limit := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(limit):
        threads = min(threads, int(limit))
    if executor == "slurm":
        return Plan(executor, throttle=parallel, pack=pack)
    return Plan(executor, workers, threads)


def _report_failures(outcome: Outcome) -> None:
    """End with exit code 1 if a trial failed, saying which, why, and where to read more; each cause once."""
    from db.selection import is_pruned

    bad = [row for row in outcome.of("failed", "cancelled") if not is_pruned(row)]
    causes: dict[str, list[str]] = {}
    for row in bad:
        causes.setdefault(f"{row.state}: {row.reason or 'no cause was noted'}", []).append(row.id)
    for cause, ids in causes.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        _say(f"{ids[0]}{more} {cause}; dropbench logs {ids[0]}")
    if bad:
        _say(f"{len(bad)} of {len(outcome.rows)} trials failed or are cancelled; to try again: dropbench retry FILTER")
        raise typer.Exit(1)


def _again() -> str:
    return shlex.join(["dropbench", *sys.argv[1:]])


def _say(line: str) -> None:
    """Standard error, so that standard output holds the table alone."""
    typer.echo(line, err=True)
