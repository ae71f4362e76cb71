"""Command-line options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.harness.cli.completion import complete_model, complete_regularizer, complete_task, one_of
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.settings import BACKENDS, DEVICES, MAX_SEEDS, Settings
from dropbench.tasks.completion import complete_data

if TYPE_CHECKING:
    from dropbench.jobs.submission.dispatch import Plan

SELECTION = "Selection by the dev score"
RUNTIME = "How trials run, which changes no trial"
"""Groups of options in a command's help."""

Seeds = Annotated[int | None, typer.Option(min=1, max=MAX_SEEDS, metavar="N", help="Seeds 0 to N-1, or the preset's.")]
Filter = Annotated[
    list[str],
    typer.Argument(
        metavar="FILTER…",
        help="Conditions that must all hold: a suite, a state, an id's beginning, KEY=VALUE, 'KEY<VALUE', not WORD.",
        autocompletion=complete_filter,
    ),
]


ShownPreset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="mini, small or paper; default: that of the newest request.",
        autocompletion=one_of("mini", "small", "paper"),
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


@dataclass(frozen=True)
class TrialOptions:
    """The options that select trials, unparsed."""

    preset: Annotated[
        str,
        typer.Option(
            help="mini: at most hours on two cores; small: tuned for minutes on one; paper: as published.",
            autocompletion=one_of("mini", "small", "paper"),
        ),
    ] = "mini"
    seeds: Seeds = None
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
            help="Additional row, such as dropkey:ratio=0.3.",
            autocompletion=complete_regularizer,
        ),
    ] = None
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Changed hyperparameter.")
    ] = None
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Task, without a SUITE.", autocompletion=complete_task)
    ] = None
    weights: Annotated[
        str | None, typer.Option(metavar="PATH", help="Initial weights: a file, or a transformers folder.")
    ] = None
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


@dataclass(frozen=True)
class RuntimeOptions:
    """The options that do not change what a trial is."""

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
    checkpoint_seconds: Annotated[
        float,
        typer.Option(min=0, max=1e9, metavar="SECONDS", help="Time between two checkpoints.", rich_help_panel=RUNTIME),
    ] = 300.0

    def to_settings(self, data: list[str] | None = None) -> Settings:
        """Return the settings of the environment with these options, and with the folders of ``--data NAME=PATH``.

        Raises:
            InputError: a name is unknown, or an option is invalid.
        """
        from dropbench.harness.training.tracking import checked_trackers

        options = {name: getattr(self, name) for name in ("device", "checkpoint_seconds", "compile")}
        settings = Settings.from_environment(**options, **({} if self.backend is None else {"backend": self.backend}))
        settings = replace(settings, trackers=checked_trackers(settings.trackers))
        return with_folders(settings, data)[0]


def runtime_settings(runtime: RuntimeOptions, data: list[str] | None, executor: str) -> Settings:
    """Return the settings, checked against this machine unless trials run on a cluster, where each checks its node."""
    settings = runtime.to_settings(data)
    if executor != "slurm" and (settings.device == "cuda" or settings.backend != "auto"):
        from dropbench.harness.attention.backends import check_backend

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
    from dropbench.jobs.submission.dispatch import Plan, local_devices

    if executor not in executors:
        raise unknown_name("executor", executor, executors)
    if executor == "slurm":
        if threads is not None:
            raise InputError("--threads: not with --executor slurm: set `cpus` in the cluster profile")
        return Plan(executor, throttle=parallel)
    cores, gpus = len(os.sched_getaffinity(0)), len(local_devices(device))
    workers = parallel or gpus or max(1, cores // (threads or 1))
    return Plan(executor, workers, threads or (max(1, cores // workers) if gpus else 1))


def with_folders(settings: Settings, data: list[str] | None) -> tuple[Settings, list[str]]:
    """Add the paths of ``--data NAME=PATH`` to the settings; return these and the names."""
    from dropbench.tasks.data.locate import parse_folders

    folders = parse_folders([item for item in data or () if "=" in item])
    names = [item.partition("=")[0] for item in data or ()]
    return replace(settings, folders={**settings.folders, **folders}), names


def expand_options(*omitted: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take `TrialOptions` or `RuntimeOptions`: they become one option per field, except those omitted."""

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        groups: dict[str, Any] = {}
        parameters: dict[str, Parameter] = {}
        for name, parameter in signature(command, eval_str=True).parameters.items():
            if parameter.annotation in (TrialOptions, RuntimeOptions):
                groups[name] = parameter.annotation
                parameters |= signature(parameter.annotation, eval_str=True).parameters
            else:
                parameters[name] = parameter
        visible = [parameters[name].replace(kind=Parameter.KEYWORD_ONLY) for name in parameters if name not in omitted]

        @wraps(command)
        def call(**values: Any) -> None:
            for name, group in groups.items():
                fields = signature(group).parameters.keys() & values.keys()
                values[name] = group(**{field: values.pop(field) for field in fields})
            command(**values)

        call.__signature__ = Signature(visible)  # type: ignore[attr-defined]
        return call

    return expand
