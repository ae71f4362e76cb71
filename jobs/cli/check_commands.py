"""The commands that check before anything is queued: `dropbench check` and `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dropbench.db.cli.output import Json
from dropbench.harness.cli.completion import (
    complete_model,
    complete_preset,
    complete_regularizer,
    complete_source,
    complete_suite,
)
from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import InputError
from dropbench.jobs.cli.options import complete_profile, with_folders
from dropbench.tasks.completion import complete_data

if TYPE_CHECKING:
    from dropbench.harness.registry import Registry
    from dropbench.harness.settings import Settings
    from dropbench.harness.trials.trial import TrialRequest

app = typer.Typer(add_completion=False)
ON_DIGITS = {"task": "image-classification", "data": "digits", "model": "vit-digits"}
"""Task, data and model with which regularizers of a plug-in are tried: every machine has them."""
DEFAULT_REGULARIZER = "dropkey:ratio=0.3"


@app.command(epilog=examples("check", "check --model transformers-encoder --weights minilm", "check --json"))
def check(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Try tasks and data with this model.", autocompletion=complete_model),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its weights: a path, hf:NAME or timm:NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Try each task, data set, model and regularizer of `--plugin FILE`: read, train a step, evaluate.

    `run`, `enqueue` and `submit` do the same with what they queue, once for each version of a file.
    """
    from dropbench.harness.cli.table import print_items
    from dropbench.harness.settings import Settings

    settings = Settings.from_environment()
    if weights is not None and model is None:
        raise InputError(f"--weights {weights}: expected --model NAME, too")
    if not (requests := list(dict.fromkeys(own_requests(model)))):
        raise InputError("no entry of a plug-in: pass `--plugin FILE`")
    if model is not None and model not in {request[2] for request in requests}:
        tasks = ", ".join(dict.fromkeys(request[0] for request in requests))
        raise InputError(f"--model {model}: is for none of the tasks that are tried: {tasks}")
    items = [_try(request, weights if request[2] == model else None, settings) for request in requests]
    print_items(items, as_json)
    if any(item["state"] == "fails" for item in items):
        raise typer.Exit(2)


def own_requests(model: str | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yield task, data set, model and regularizer of the trials that together use every entry of plug-ins.

    `model` is that of every task that it is for, whatever the regularizer.
    """
    from dropbench.harness.models.catalog import MODELS
    from dropbench.harness.regularizers import REGULARIZERS
    from dropbench.harness.trials.task import TASKS, spec_of
    from dropbench.harness.trials.trial import SYNTHETIC
    from dropbench.tasks.data import DATASETS

    own_models, own_data = _own(MODELS), _own(DATASETS)

    def models(kind: str) -> list[str]:
        if model is not None and kind in MODELS.entry(model).facts.get("tasks", [kind]):
            return [model]
        fitting = [name for name in MODELS if kind in MODELS.entry(name).facts.get("tasks", [kind])]
        return [name for name in fitting if name in own_models] or fitting[:1]

    def data(kind: str) -> list[str]:
        fitting = {name: DATASETS.get(name) for name in DATASETS if DATASETS.get(name).kind == kind}
        if own := [name for name in fitting if name in own_data]:
            return own
        installed = [name for name, dataset in fitting.items() if dataset.package and dataset.classes]
        generated = [name + SYNTHETIC for name, dataset in fitting.items() if dataset.synthetic]
        return [*installed[-1:], *generated, *fitting][:1]

    for task in TASKS:
        kind = getattr(spec_of(task), "kind", task)
        is_own = TASKS.entry(task).plugin is not None
        for name in data(kind) or [""]:
            for each in models(kind) or [""]:
                declared = each in own_models and "tasks" in MODELS.entry(each).facts
                if is_own or name in own_data or declared:
                    yield task, name, each, "none"
    for each in own_models:
        if "tasks" not in MODELS.entry(each).facts:
            yield ON_DIGITS["task"], ON_DIGITS["data"], each, "none"
    for regularizer in _own(REGULARIZERS):
        yield *ON_DIGITS.values(), regularizer  # type: ignore[misc]


def _own(registry: Registry[Any]) -> list[str]:
    return [name for name in registry if registry.entry(name).plugin is not None]


def _try(parts: tuple[str, str, str, str], weights: str | None, settings: Settings) -> dict[str, Any]:
    from dropbench.harness.errors import UnsuitableError
    from dropbench.harness.trials.plugins import make_trials
    from dropbench.jobs.queue.operations import check_trial

    item: dict[str, Any] = dict(zip(("task", "data", "model", "regularizer"), parts, strict=True))
    if missing := next((name for name in ("data", "model") if not item[name]), None):
        return {
            **item,
            "state": "unchecked",
            "detail": f"no {missing} is registered for this task: `enqueue` checks it",
        }
    try:
        [trial] = make_trials(_request(parts, weights), [0], settings)
        notes = check_trial(trial, settings, again=True)
    except UnsuitableError as error:
        return {**item, "state": "unchecked", "detail": str(error)}
    except InputError as error:
        return {**item, "state": "fails", "detail": str(error)}
    return {**item, "state": "ok", "detail": "; ".join(notes)}


def _request(parts: tuple[str, str, str, str], weights: str | None) -> TrialRequest:
    from dropbench.harness.trials.recipe import default_preset
    from dropbench.harness.trials.trial import TrialRequest
    from dropbench.jobs.cli.options import presets_of

    task, data, model, regularizer = parts
    preset = default_preset(presets_of(task))
    return TrialRequest(task=task, data=data, model=model, regularizer=regularizer, preset=preset, weights=weights)


@app.command(
    epilog=examples(
        "doctor",
        "doctor --json",
        "doctor --model timm:vit_tiny_patch16_224",
        "doctor --model hf:bert-base --regularizer drophead",
        "doctor --profile a100 --suite dropkey/table1",
    )
)
def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:NAME",
            help="Check a library's model instead, with random input: timm:NAME, or hf:FOLDER with its config.json.",
            autocompletion=complete_source,
        ),
    ] = None,
    regularizer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help=f"The regularizer of the model.  [default: {DEFAULT_REGULARIZER}]",
            autocompletion=complete_regularizer,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check instead whether a job of this cluster profile can train a suite; waits for one such job.",
            autocompletion=complete_profile,
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="SUITE", help="The suite of the profile.", autocompletion=complete_suite)
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="The preset of the suite.", autocompletion=complete_preset),
    ] = "paper",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PATH]",
            help="Only these data sets of the suite; PATH: folder of this data set.",
            autocompletion=complete_data,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report what works on this machine and what is missing, in a model, or before a suite is submitted."""
    from dropbench.harness.checking.machine import check_model, examine
    from dropbench.harness.cli.table import print_items

    if (profile is None) != (suite is None):
        raise InputError(
            "--profile and --suite: expected both: they check whether the profile's jobs can train the suite"
        )
    if profile is not None and suite is not None:
        from dropbench.harness.settings import Settings
        from dropbench.harness.suites.cell import SuiteOptions
        from dropbench.jobs.queue.readiness import check_readiness

        if model is not None:
            raise InputError("--model: expected no --profile")
        settings, names = with_folders(Settings.from_environment(), data)
        findings = check_readiness(profile, suite, SuiteOptions(preset=preset, data=tuple(names)), settings)
    elif data:
        raise InputError(f"--data {data[0]}: it is for a suite: add `--profile NAME --suite SUITE`")
    elif model is not None:
        findings = check_model(model, regularizer or DEFAULT_REGULARIZER)
    elif regularizer is not None:
        raise InputError("--regularizer: it is for a model: add `--model timm:NAME` or `--model hf:FOLDER`")
    else:
        findings = examine()
    print_items([finding._asdict() for finding in findings], as_json)
    if any(finding.state in ("missing", "fails") for finding in findings):
        raise typer.Exit(1)
