"""Command-line options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dropbench.harness.cli.completion import (
    Item,
    complete_model,
    complete_preset,
    complete_regularizer,
    complete_task,
    completer,
    one_of,
)
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.settings import BACKENDS, DEVICES, MAX_SEEDS, Settings
from dropbench.tasks.completion import complete_data

if TYPE_CHECKING:
    from dropbench.harness.regularizers.spec import Scalar
    from dropbench.jobs.queue.request import Requested
    from dropbench.jobs.submission.dispatch import Plan

SELECTION = "Selection by the dev score"
RUNTIME = "How trials run, which changes no trial"
"""Groups of options in a command's help."""

ShownPreset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="mini, small or paper; default: that of the newest request.",
        autocompletion=complete_preset,
    ),
]
ShownData = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME[=PATH]", help="Show only these data sets.", autocompletion=complete_data),
]
ShownModel = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="Show only these models.", autocompletion=complete_model),
]
ShownRequest = Annotated[
    str | None,
    typer.Option("--request", metavar="ID", help="Show only this request; notes name others."),
]


def _profiles(word: str) -> list[Item]:
    from dropbench.jobs.slurm.profile import load_profiles

    return [(name, "") for name in load_profiles()]


complete_profile = completer(_profiles)


def _parse_seeds(text: str) -> int:
    """Parse ``--seeds N``; raise InputError for other texts, such as a range of seeds."""
    if text.isdecimal() and text.isascii() and 1 <= int(text[:9]) <= MAX_SEEDS:
        return int(text)
    message = f"--seeds {text}: expected a number of seeds from 1 to {MAX_SEEDS}"
    if several := re.fullmatch(r"0\D+(\d{1,4})", text):
        message += f": `--seeds {int(several[1]) + 1}` trains seeds 0 to {several[1]}"
    raise InputError(message)


@dataclass(frozen=True)
class RunOptions:
    """Options of `run`, `enqueue` and `submit` as they were typed: what to run, and how."""

    preset: Annotated[
        str | None,
        typer.Option(
            help="mini: at most hours on two cores; small: tuned for minutes on one; paper: as published."
            "  [default: mini, or else the first]",
            autocompletion=complete_preset,
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(parser=_parse_seeds, metavar="N", help="Seeds 0 to N-1, or the preset's."),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PATH]",
            help="Only these data sets; PATH: folder of this data set.",
            autocompletion=complete_data,
        ),
    ] = None
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these models.", autocompletion=complete_model)
    ] = None
    regularizer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="A row, such as dropkey:ratio=0.3, besides those of a suite.",
            autocompletion=complete_regularizer,
        ),
    ] = None
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Changed hyperparameter.")
    ] = None
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Task, without a SUITE.", autocompletion=complete_task)
    ] = None
    weights: Annotated[str | None, typer.Option(metavar="NAME", help="Initial: a path, hf:NAME or timm:NAME.")] = None
    keep_weights: Annotated[bool, typer.Option("--keep-weights", help="Keep the best fine-tuned weights.")] = False
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Select by dev score: ratio=0.1,0.2, window=1..3, set.lr=1e-4,1e-3; none.",
            rich_help_panel=SELECTION,
        ),
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=VALUE,…",
            help="Search instead of a grid: sampler, candidates, pruner, seed, batch.",
            rich_help_panel=SELECTION,
        ),
    ] = None
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda.", autocompletion=one_of(*DEVICES), rich_help_panel=RUNTIME)
    ] = "auto"
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Backend of attention with dropout: auto, eager, cpu or triton.",
            autocompletion=one_of(*BACKENDS),
            rich_help_panel=RUNTIME,
        ),
    ] = None
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile models with torch.compile.", rich_help_panel=RUNTIME)
    ] = False
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            metavar="N",
            help="CPU threads per trial; default: 1, with GPUs cores/workers.",
            rich_help_panel=RUNTIME,
        ),
    ] = None
    gpus_per_trial: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="GPUs per trial, with a process each.", rich_help_panel=RUNTIME),
    ] = 1
    checkpoint_seconds: Annotated[
        float,
        typer.Option(min=0, max=1e9, metavar="SECONDS", help="Time between two checkpoints.", rich_help_panel=RUNTIME),
    ] = 300.0

    def settings(self, *, here: bool) -> Settings:
        """Return the settings of the environment with these options, and with the folders of ``--data NAME=PATH``.

        Args:
            here: whether trials run on this machine, which is checked; a cluster's nodes check themselves.

        Raises:
            InputError: a name is unknown, or an option is invalid.
        """
        from dropbench.harness.training.tracking import checked_trackers

        options = {name: getattr(self, name) for name in ("device", "checkpoint_seconds", "compile", "keep_weights")}
        settings = Settings.from_environment(**options, **({} if self.backend is None else {"backend": self.backend}))
        settings = replace(settings, trackers=checked_trackers(settings.trackers))
        settings, _ = with_folders(settings, self.data)
        if here and (settings.device == "cuda" or settings.backend != "auto"):
            from dropbench.harness.attention.backends import check_backend

            check_backend(settings.backend, cuda=settings.uses_cuda())
        return settings

    def plan(self, executor: str, parallel: int | None, executors: Sequence[str]) -> Plan:
        """Return the workers, and the processes and CPU threads of each.

        Raises InputError if the executor is none of `executors`, if it or the number of GPUs does not allow that number
        of processes per trial, or if torchrun started this process.

        The default number of threads does not depend on that of the workers: on a CPU, it changes the last digits. With
        GPUs it does, because threads only prepare the data.
        """
        from dropbench.jobs.submission.dispatch import Plan
        from dropbench.jobs.worker import process_group

        if executor not in executors:
            raise unknown_name("executor", executor, executors)
        process_group.require_one_process()
        cores, gpus = len(os.sched_getaffinity(0)), len(process_group.visible_devices(self.device))
        process_group.check_gpus_per_trial(processes := self.gpus_per_trial, gpus, executor, self.device)
        if executor == "slurm":
            if self.threads is not None:
                raise InputError("--threads: not with --executor slurm: set `cpus` in the cluster profile")
            return Plan(executor, throttle=parallel)
        workers = gpus // processes if gpus else max(1, cores // (self.threads or 1) // processes)
        workers = parallel if parallel and not (gpus and processes > 1) else min(parallel or workers, workers)
        threads = self.threads or (max(1, cores // (workers * processes)) if gpus else 1)
        return Plan(executor, workers, threads, processes)

    def requested(self, suite: str | None, settings: Settings) -> Requested:
        """Return the request of a suite, or of one configuration if no suite is named.

        Raises:
            InputError: an option is unknown, missing, or in conflict with another.
        """
        from dropbench.harness.suites.cell import SuiteOptions
        from dropbench.harness.suites.search_space import parse_search, parse_space
        from dropbench.harness.suites.suite import load_suite
        from dropbench.harness.trials.recipe import default_preset
        from dropbench.jobs.queue.request import request_configuration, request_suite

        if suite and self.task is not None:
            raise InputError(f"--task {self.task}: suite {suite} defines it; use --task only without a SUITE")
        for option, value in (("--sweep", next(iter(self.sweep or ()), None)), ("--search", self.search or None)):
            if not suite and value is not None:
                raise InputError(f"{option} {value}: a SUITE is required, as its cells are searched")
        known = load_suite(suite) if suite else None
        options = SuiteOptions(
            preset=self.preset or default_preset(known.presets if known is not None else presets_of(self.task)),
            seeds=tuple(range(self.seeds or 0)),
            data=tuple(item.partition("=")[0] for item in self.data or ()),
            models=tuple(self.model or ()),
            regularizers=tuple(self.regularizer or ()),
            overrides=dict(map(_parse_override, self.overrides or ())),
            weights=self.weights,
            sweep=parse_space(self.sweep) if self.sweep else None,
            search=parse_search(self.search) if self.search else None,
        )
        if known is not None:
            return request_suite(known, options, settings)
        return request_configuration(self.task, options, settings)


def presets_of(task: str | None) -> Collection[str]:
    """Return the presets of a plug-in's task; () for others, which have mini."""
    from dropbench.harness.trials.task import TASKS, spec_of

    if task is None or task not in TASKS:
        return ()
    recipes = getattr(spec_of(task), "recipes", None) or {}
    presets: Collection[str] = recipes.get("presets", ())
    return presets


def _parse_override(item: str) -> tuple[str, Scalar]:
    """Parse ``--set KEY=VALUE``; raise InputError if it does not have this form."""
    from dropbench.harness.regularizers.spec import parse_scalar

    key, separator, value = map(str.strip, item.partition("="))
    if not (key and separator and value):
        raise InputError(f"--set {item}: expected key=value, such as lr=0.001")
    return key, parse_scalar(value)


def with_folders(settings: Settings, data: list[str] | None) -> tuple[Settings, list[str]]:
    """Add the paths of ``--data NAME=PATH`` to the settings; return these and the names."""
    from dropbench.tasks.data.locate import parse_folders

    folders = parse_folders([item for item in data or () if "=" in item])
    names = [item.partition("=")[0] for item in data or ()]
    return replace(settings, folders={**settings.folders, **folders}), names


def with_run_options(*omitted: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take `options: RunOptions`: they become one option per field, except those omitted."""
    fields = signature(RunOptions, eval_str=True).parameters
    shown = {name: field for name, field in fields.items() if name not in omitted}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = signature(command, eval_str=True).parameters.items()
        visible = [field for name, own in parameters for field in (shown.values() if name == "options" else [own])]

        @wraps(command)
        def call(**values: Any) -> None:
            command(options=RunOptions(**{name: values.pop(name) for name in shown}), **values)

        call.__signature__ = Signature(  # type: ignore[attr-defined]
            [field.replace(kind=Parameter.KEYWORD_ONLY) for field in visible]
        )
        return call

    return decorate
