"""The commands `dropbench list` and `dropbench analyze`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from db.cli.output import Json
from harness.analysis import ANALYSES
from harness.cli.table import print_items
from harness.errors import InputError, unknown_name
from harness.settings import Settings
from jobs.cli.options import Seeds, TrialOptions

app = typer.Typer(rich_markup_mode=None)

Kind = Literal["tasks", "models", "data", "regularizers", "schedules", "suites", "published"]
"""The kinds of items that can be listed."""


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
    from jobs.cli.listing import list_items, list_sites, published_lines

    items = list_sites(sites, regularizer) if sites else list_items(kind)
    if kind == "published" and not sites and not as_json:
        items = published_lines(items)
    elif not as_json:  # readers of a table do not need import paths
        items = [{key: value for key, value in item.items() if key not in ("spec", "outline")} for item in items]
    print_items(items, as_json)


@app.command()
def analyze(
    target: Annotated[str, typer.Argument(metavar="ID|SUITE", help="A trial's id or its beginning, or a suite.")],
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=", ".join(ANALYSES) + "; for a suite, default: those it shows.")
    ] = None,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Split of the data.")] = "test",
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
    seeds: Seeds = None,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="For a suite: only these models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Json = False,
) -> None:
    """Analyze a trained trial, or all trained trials of a suite.

    Scalars are added to the results as KIND/NAME; figure and arrays are written to the run directory.
    """
    from harness.analysis.options import Options
    from harness.suites.suite import is_suite, load_suite
    from jobs.cli.suite_analysis import analyze_trial, show_suite
    from jobs.cli.trial_request import suite_options
    from tasks.data.locate import parse_folders

    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    if is_suite(target):
        for option, value in (("--samples", samples), ("--output", output), ("--split", split)):
            if value is not None and value != "test":
                raise InputError(
                    f"{option} {value}: analyses of a suite use all test samples: pass a trial's id instead"
                )
        options = TrialOptions(preset or "mini", seeds, data, model)
        settings, choice = suite_options(options, Settings.from_environment(device=device))
        if not show_suite(load_suite(target), choice, settings, kind, as_json=as_json):
            raise typer.Exit(1)
        return
    for option, given in (("--preset", preset), ("--seeds", seeds), ("--model", model)):
        if given:
            raise InputError(f"{option}: trial '{target}' defines it: use {option} only with a suite")
    if kind is None:
        raise InputError(f"analyze {target}: KIND is missing: expected one of {', '.join(ANALYSES)}")
    settings = Settings.from_environment(device=device, folders=parse_folders(data or ()))
    report = analyze_trial(target, kind, Options(split, samples), settings, output)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, indent=1))
        return
    rows = [{"metric": f"{report['kind']}/{name}", "value": value} for name, value in report["scalars"].items()]
    print_items(rows, as_json=False)
    typer.echo("\n".join(report["files"]), err=True)
