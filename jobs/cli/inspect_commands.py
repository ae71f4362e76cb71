"""The commands `dropbench list` and `dropbench analyze`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.analysis import ANALYSES

app = typer.Typer(rich_markup_mode=None)


class Kind(StrEnum):
    """The kinds of items that can be listed."""

    tasks = "tasks"
    models = "models"
    data = "data"
    regularizers = "regularizers"
    schedules = "schedules"
    suites = "suites"
    published = "published"


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="Kind of items to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sites: Annotated[str | None, typer.Option(help="List the attention sites of this model instead.")] = None,
    regularizer: Annotated[
        str, typer.Option(help="With --sites: the regularizer to bind, as name:key=value,schedule=….")
    ] = "dropkey:ratio=0.3,schedule=decreasing",
) -> None:
    """List tasks, models, data sets, regularizers, schedules, suites or published values."""
    from harness.cli.table import print_items
    from jobs.cli.listing import list_items, list_sites, published_lines

    items = list_sites(sites, regularizer) if sites else list_items(kind.value)
    if kind is Kind.published and not sites and not as_json:
        items = published_lines(items)
    print_items(items, as_json)


class SplitName(StrEnum):
    """The splits of a task's data."""

    train = "train"
    dev = "dev"
    test = "test"


@app.command()
def analyze(
    target: Annotated[str, typer.Argument(metavar="ID|SUITE", help="A trial's id or its beginning, or a suite.")],
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=", ".join(ANALYSES) + "; for a suite, default: those it shows.")
    ] = None,
    split: Annotated[SplitName, typer.Option(help="Split of the data.")] = SplitName.test,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of random samples; default: all, for maps 4.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write here instead of to the run directory.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=PATH]", help="Folder of a data set; for a suite, only these data sets."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="For a suite: the preset that was run; default: mini.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="For a suite: seeds 0 to N-1.")] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="For a suite: only these models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Analyze a trained trial, or all trained trials of a suite.

    Scalars are added to the results as KIND/NAME; figure and arrays are written to the run directory.
    """
    from harness.analysis.options import Options
    from harness.cli.table import print_items
    from harness.errors import InputError, unknown_name
    from harness.settings import Settings
    from harness.suites.suite import is_suite
    from tasks.data.locate import parse_folders

    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    if is_suite(target):
        options = {
            "--samples": samples,
            "--output": output,
            "--split": None if split is SplitName.test else split.value,
        }
        for option, value in options.items():
            if value is not None:
                raise InputError(
                    f"{option} {value}: analyses of a suite use all test samples: pass a trial's id instead"
                )
        settings = Settings.from_environment(device=device)
        from jobs.cli.suite_analysis import analyze as analyze_suite

        if not analyze_suite(target, kind, settings, preset, seeds, data, model, as_json=as_json):
            raise typer.Exit(1)
        return
    for option, given in (("--preset", preset), ("--seeds", seeds), ("--model", model)):
        if given:
            raise InputError(f"{option}: trial '{target}' defines it: use {option} only with a suite")
    if kind is None:
        raise InputError(f"analyze {target}: KIND is missing: expected one of {', '.join(ANALYSES)}")
    from jobs.cli.suite_analysis import analyze_trial

    settings = Settings.from_environment(device=device, folders=parse_folders(data or ()))
    report = analyze_trial(target, kind, Options(split.value, samples), settings, output)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, indent=1))
        return
    rows = [{"metric": f"{report['kind']}/{name}", "value": value} for name, value in report["scalars"].items()]
    print_items(rows, as_json=False)
    typer.echo("\n".join(report["files"]), err=True)
