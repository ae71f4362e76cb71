"""`run`, `results` and `trial`: the command line's own code, for scripts and notebooks.

Paths are those of the command line: `DROPBENCH_DATA`, `DROPBENCH_RUNS` and `DROPBENCH_DB`, or else `data`, `runs` and
`dropbench.db` in the working folder.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any

from dropbench.db.cli.output import split
from dropbench.db.queries.results import results as query
from dropbench.db.queries.results import sort_rows
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.requests import look_up
from dropbench.db.schema.reference import PREFIX
from dropbench.db.statistics.seeds import DEFAULT_AGGREGATES
from dropbench.db.store.store import open_store
from dropbench.harness.errors import InputError, check_text
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import Registry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import Scalar, part_names
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.settings import MAX_SEEDS, Settings
from dropbench.harness.trials.plugins import load_plugins
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.cli.options import RunOptions
from dropbench.jobs.cli.suite_analysis import analyze_table
from dropbench.jobs.queue.progress_bar import ProgressBar
from dropbench.jobs.queue.reconcile import opened_results
from dropbench.jobs.queue.run_loop import run as run_trials
from dropbench.notebook import NotebookProgress, notebook_display
from dropbench.tables import Table
from dropbench.tasks.data.locate import parse_folders
from dropbench.trial_run import TrialRun

Text = str | PathLike[str]
Texts = Text | Sequence[Text]
"""An option that the command line takes once or several times."""


class Stopped(KeyboardInterrupt):
    """`run` was interrupted, and its trials have stopped in order: a traceback would say nothing more."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows."""
        return [str(self)]


def _print_stopped(
    otherwise: Callable[..., object], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print one line for `Stopped` as `sys.excepthook`."""
    if isinstance(error, Stopped):
        print(error, file=sys.stderr)
    else:
        otherwise(kind, error, trace)


def run(
    suite: Text | None = None,
    *,
    preset: str | None = None,
    seeds: int | None = None,
    data: Texts | None = None,
    model: Texts | None = None,
    regularizer: Texts | None = None,
    set: Mapping[str, Scalar] | Texts | None = None,
    task: str | None = None,
    weights: Text | None = None,
    keep_weights: bool = False,
    sweep: Texts | None = None,
    search: str | None = None,
    parallel: int | None = None,
    executor: str = "local",
    device: str = "auto",
    backend: str | None = None,
    compile: bool = False,
    threads: int | None = None,
    checkpoint_seconds: float = 300.0,
    plugin: Texts | None = None,
) -> Table:
    """Train a suite or one configuration on this machine, as ``dropbench run`` does. Finished trials are not repeated.

    The keywords are the options of ``dropbench run``; where an option can be repeated, pass a list. Ctrl-C, or the
    interruption of a notebook's cell, stops the workers at a checkpoint; the same call then continues.

    Args:
        suite: a suite's name or a ``.yaml`` file; None: one configuration of `task`, `data` and `model`.
        preset: "mini" or "paper"; None: "mini", or else the first that the suite has.
        seeds: trains seeds 0 to `seeds` - 1; None: as many as the preset has, or one without a suite.
        data: data sets, as ``"NAME"`` or ``"NAME=PATH"``; of a suite, only these.
        model: models; of a suite, only these.
        regularizer: such as ``"dropkey:ratio=0.3,schedule=decreasing"``; of a suite, additional rows; without one, the
            rows, of which the first is the baseline.
        set: changed hyperparameters, such as ``{"steps": 100}`` or ``"steps=100"``.
        task: the task, without a suite.
        weights: initial weights: a path, ``"hf:ORGANISATION/NAME@REVISION"`` or ``"timm:NAME"``.
        keep_weights: the best trial of each cell keeps its fine-tuned weights.
        sweep: values to select by dev score, such as ``"ratio=0.1,0.2"``.
        search: a search instead of a grid, such as ``"sampler=tpe,candidates=20"``.
        parallel: maximum number of workers; None: the number of GPUs, or else of cores.
        executor: "local" for background workers, or "debug" for this process.
        device: "auto", "cpu" or "cuda".
        backend: the implementation of attention with dropped keys: "auto", "eager", "cpu" or "triton".
        compile: compile models with `torch.compile`.
        threads: CPU threads per trial; more change the last digits. None: 1, and with GPUs the cores per worker.
        checkpoint_seconds: time between two checkpoints, in seconds.
        plugin: files or folders that register regularizers, models or tasks, besides those of `DROPBENCH_PLUGINS`, as
            they are now. Entries registered in the program itself are refused: workers do not have them.

    Returns:
        The table of the suite next to the published one, that of several regularizers, or the results of one
        configuration. If trials failed, a warning names the causes.

    Raises:
        InputError: an argument is invalid, missing, or in conflict with another.
        KeyboardInterrupt: the run was interrupted by Ctrl-C or SIGTERM. It ends a script in one line, without a
            traceback.
    """
    _check_range("seeds", seeds, MAX_SEEDS)
    _check_range("parallel", parallel)
    _check_range("threads", threads)
    _check_range("checkpoint_seconds", checkpoint_seconds, 10**9, minimum=0)
    pairs = [f"{key}={value}" for key, value in set.items()] if isinstance(set, Mapping) else set
    options = RunOptions(
        preset=None if preset is None else _text("preset", preset),
        seeds=seeds,
        data=_texts("data", data),
        model=_texts("model", model),
        regularizer=_texts("regularizer", regularizer),
        overrides=_texts("set", pairs),
        task=None if task is None else _text("task", task),
        weights=None if weights is None else _text("weights", weights),
        keep_weights=keep_weights,
        sweep=_texts("sweep", sweep),
        search=None if search is None else _text("search", search),
        device=device,
        backend=backend,
        compile=compile,
        threads=threads,
        checkpoint_seconds=checkpoint_seconds,
    )
    plan = options.plan(executor, parallel, ("local", "debug"))
    settings = _with_plugins(options.settings(here=True), plugin)
    requested = options.requested(None if suite is None else _text("suite", suite), settings)
    _check_plugins(requested.trials.values())
    bar = NotebookProgress if notebook_display() else ProgressBar
    with open_store(settings.database) as store:
        summary = run_trials(store, settings, requested, plan, bar=bar)
        if summary.interrupted:
            done = f"{len(summary.in_states('succeeded'))} of {len(summary.rows)} trials done"
            sys.excepthook = partial(_print_stopped, sys.excepthook)
            raise Stopped(f"Stopped: {done}. The same call continues.")
        failures = summary.failures()
        shown = look_up(store, request=summary.request.id)
        if shown is None or (suite is None and len(summary.request.rows) == 1):
            ids = list(requested.trials)
            table = Table.of_rows(query(store, ids=ids), ids, settings)
        else:
            failures += analyze_table(shown, settings, store)
            table = Table.of_suite(build_view(shown, store, settings.runs), settings)
    if failures:
        warnings.warn("\n".join(failures), stacklevel=2)
    return table


def results(
    filter: str | Sequence[str] = "",
    *,
    group_by: Texts | None = None,
    metric: Texts | None = None,
    aggregate: Texts | None = None,
    sort: Texts | None = None,
    limit: int | None = None,
    reference: Text | None = None,
    plugin: Texts | None = None,
) -> Table:
    """Query the metrics in the database, averaged over seeds, as ``dropbench results`` does.

    Args:
        filter: conditions that must all hold, separated by spaces: a suite, a state, the start of a trial's id,
            ``KEY=VALUE`` or ``KEY<VALUE``, such as ``"regularizer=dropkey ratio<0.3"``; "": all trials.
        group_by: averages over all but these keys, such as "data" or "ratio".
        metric: such as "accuracy" (on the test set), "dev/accuracy" or "all"; None: those of the test set.
        aggregate: "mean", "std" and "n" (the default), "median", "min", "max" or "sem".
        sort: sorts by these columns; "-mean" in descending order.
        limit: returns only the first rows.
        reference: as ``--with``: "reference" adds the results that are shipped with DropBench in rows of their own, a
            path those of another such file. `Table.trials` has none of them.
        plugin: as of `run`.

    Returns:
        One row per suite, configuration and metric, or per metric and values of the `group_by` keys.

    Raises:
        InputError: a condition, metric, key or aggregate is unknown, or the reference is missing or damaged.
    """
    _check_range("limit", limit)
    location = None if reference is None else _text("reference", reference)
    words = [word for text in _texts("filter", filter) or () for word in text.split()]
    settings = _with_plugins(Settings.from_environment(), plugin)
    with opened_results(settings, location) as store:
        rows = query(
            store,
            words,
            metrics=split(_texts("metric", metric)),
            group_by=split(_texts("group_by", group_by)),
            aggregates=split(_texts("aggregate", aggregate)) or DEFAULT_AGGREGATES,
        )
        ids = [id for id in store.find(" ".join(words)) if not id.startswith(PREFIX)]
    return Table.of_rows(sort_rows(rows, split(_texts("sort", sort)), limit), ids, settings)


def trial(id: str, *, data: Texts | None = None, device: str = "auto", plugin: Texts | None = None) -> TrialRun:
    """Return a trial by its id or the beginning of its id, from its run directory.

    Args:
        id: such as ``"ec35"``; the command line prints ids, and `Table.trials` has them.
        data: the folder of its data set, as ``"NAME=PATH"``, if it is not in `DROPBENCH_DATA`.
        device: "auto", "cpu" or "cuda", for its model.
        plugin: as of `run`. The trial's own plug-ins are loaded as they were when it was requested.

    Raises:
        InputError: no trial or several trials have this id.
    """
    settings = Settings.from_environment(device=device, folders=parse_folders(_texts("data", data) or ()))
    return TrialRun(Runs(settings.runs).find(_text("id", id)), _with_plugins(settings, plugin))


def _with_plugins(settings: Settings, plugin: Texts | None) -> Settings:
    """Load the plug-ins of the environment and these, and return the settings with all of them."""
    settings = replace(settings, plugins=(*settings.plugins, *map(Path, _texts("plugin", plugin) or ())))
    load_plugins(settings.plugins)
    return settings


def _check_plugins(trials: Iterable[Trial]) -> None:
    """Raise InputError if an entry is of this program: workers cannot import it, and no trial's id has its content."""
    for trial in trials:
        names: tuple[tuple[Registry[Any], str], ...]
        regularizers = ((REGULARIZERS, name) for name in part_names(trial.regularizer.name))
        names = ((TASKS, trial.task), (MODELS, trial.model), *regularizers)
        for registry, name in names:
            entry = registry.entry(name) if name in registry else None  # a task may build its models itself
            module = getattr(entry and entry.target, "__module__", "dropbench")
            if entry and entry.plugin is None and module.partition(".")[0] != "dropbench":
                raise InputError(f"{registry.kind} '{name}' is of {module}: write it to a file, and pass plugin=FILE")


def _text(option: str, value: object) -> str:
    if not isinstance(value, str | PathLike):
        raise InputError(f"{option}={value!r}: expected a string")
    text = str(fspath(value))
    check_text(text, option)
    return text


def _texts(option: str, value: object) -> list[str] | None:
    """Return the values of an option that may be repeated; None if it is not given."""
    if value is None:
        return None
    if isinstance(value, str | PathLike):
        return [_text(option, value)]
    if not isinstance(value, Sequence):
        raise InputError(f"{option}={value!r}: expected a string, or a list of strings")
    return [_text(option, item) for item in value]


def _check_range(option: str, value: object, maximum: int | None = None, *, minimum: int = 1) -> None:
    """Check a number as the command line does; None is not given."""
    kinds = (int, float) if minimum == 0 else (int,)
    valid = isinstance(value, kinds) and minimum <= value and (maximum is None or value <= maximum)
    if value is not None and not valid:
        above = f"from {minimum} to {maximum}" if maximum is not None else f"of at least {minimum}"
        raise InputError(f"{option}={value!r}: expected a number {above}")
