"""`dropbench list`, `analyze` and `doctor`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.analysis import ANALYSES

app = typer.Typer(rich_markup_mode=None)


class Kind(StrEnum):
    """What can be listed."""

    tasks = "tasks"
    models = "models"
    data = "data"
    regularizers = "regularizers"
    schedules = "schedules"
    suites = "suites"
    published = "published"


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sites: Annotated[str | None, typer.Option(help="With models: the attention sites of this one.")] = None,
    regularizer: Annotated[
        str, typer.Option(help="With --sites: what to bind, as name:key=value,schedule=….")
    ] = "dropkey:ratio=0.3,schedule=decreasing",
) -> None:
    """List what there is."""
    from harness.listing import list_items, list_sites, published_lines

    items = list_sites(sites, regularizer) if sites else list_items(kind.value)
    if kind is Kind.published and not sites and not as_json:
        items = published_lines(items)
    _print(items, as_json)


class SplitName(StrEnum):
    """The splits of a task's data."""

    train = "train"
    dev = "dev"
    test = "test"


@app.command()
def analyze(
    target: Annotated[str, typer.Argument(metavar="ID|SUITE", help="The beginning of a trial's id, or a suite.")],
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=", ".join(ANALYSES) + "; of a suite, default: what it shows.")
    ] = None,
    split: Annotated[SplitName, typer.Option(help="Which of its data.")] = SplitName.test,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="So many random samples; default: all, of maps 4.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write here, not to the run directory.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=PATH]", help="Where a data set lies; of a suite, only these data sets."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Of a suite: the preset that was run; default: mini.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of a suite: seeds 0 to N-1.")] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Of a suite: only these models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Measure a trained trial, or all of a suite's that are trained.

    Scalars go to the results as KIND/NAME, figure and arrays to the run directory.
    """
    from harness.analysis import Options
    from harness.errors import InputError, unknown_name
    from harness.registry import load
    from harness.settings import Settings
    from harness.suite import is_suite

    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    if is_suite(target):
        given = {"--samples": samples, "--output": output, "--split": None if split is SplitName.test else split.value}
        for option, value in given.items():
            if value is not None:
                raise InputError(f"{option} {value}: a suite's analyses are of all of test: expected a trial's id")
        settings = Settings.from_environment(device=device)
        if not load("jobs.analyses:analyze")(target, kind, settings, preset, seeds, data, model, as_json=as_json):
            raise typer.Exit(1)
        return
    for option, asked in (("--preset", preset), ("--seeds", seeds), ("--model", model)):
        if asked:
            raise InputError(f"{option}: trial '{target}' says that itself: expected it with a suite")
    if kind is None:
        raise InputError(f"analyze {target}: expected what to measure: {', '.join(ANALYSES)}")
    folders = load("tasks.data.locate:parse_folders")(data or ())
    settings = Settings.from_environment(device=device, folders=folders)
    found = load("harness.analysis.run:analyze")(target, kind, Options(split.value, samples), settings, output)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    _print([{"metric": f"{found['kind']}/{name}", "value": value} for name, value in found["scalars"].items()], False)
    typer.echo("\n".join(found["files"]), err=True)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what works on this machine and what is missing."""
    from harness.doctor import examine

    findings = examine()
    _print([finding._asdict() for finding in findings], as_json)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def _print(items: list[dict[str, Any]], as_json: bool) -> None:
    """Items as JSON, or as a table with their keys as columns."""
    if as_json:
        typer.echo(json.dumps(items, ensure_ascii=False, indent=1))
        return
    keys = list(dict.fromkeys(key for item in items for key in item))
    numbers = {key for key in keys if all(isinstance(item.get(key), int | float) for item in items)}
    rows = [[_shown(item.get(key)) for key in keys] for item in items]
    if not sys.stdout.isatty():
        # A pipe has no width to fit, one line an item; and rich takes a quarter of a start.
        widths = [max(map(len, column)) for column in zip(keys, *rows, strict=True)]
        for row in (keys, *rows):
            cells = zip(keys, row, widths, strict=True)
            line = (cell.rjust(width) if key in numbers else cell.ljust(width) for key, cell, width in cells)
            typer.echo("  ".join(line).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in keys:
        table.add_column(key, justify="right" if key in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
