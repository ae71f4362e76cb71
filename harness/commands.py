"""`dropbench list`, `analyze` and `doctor`."""

from __future__ import annotations

import json
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
    from harness.listing import list_items, list_sites

    items = list_sites(sites, regularizer) if sites else list_items(kind.value)
    _print(items, as_json)


class SplitName(StrEnum):
    """The splits of a task's data."""

    train = "train"
    dev = "dev"
    test = "test"


@app.command()
def analyze(
    trial: Annotated[str, typer.Argument(metavar="ID", help="The beginning of the trial's id.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(ANALYSES) + ".")],
    split: Annotated[SplitName, typer.Option(help="Which of its data.")] = SplitName.test,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="So many random samples; default: all, of maps 4.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write here, not to the run directory.")
    ] = None,
    data: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="Where a data set lies.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Measure a trained trial. Scalars go to the results as KIND/NAME, figure and arrays to its run directory."""
    from harness.analysis import Options
    from harness.analysis.run import analyze as run
    from harness.errors import unknown_name
    from harness.registry import load
    from harness.settings import Settings

    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    folders = load("tasks.data.locate:parse_folders")(data or ())
    settings = Settings.from_environment(device=device, folders=folders)
    found = run(trial, kind, Options(split.value, samples), settings, output)
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in dict.fromkeys(key for item in items for key in item):
        number = all(isinstance(item.get(key), int | float) for item in items)
        table.add_column(key, justify="right" if number else "left", overflow="fold")
    for item in items:
        table.add_row(*(Text(_shown(item.get(str(column.header)))) for column in table.columns))
    console = Console()
    # A pipe has no width to fit: one line an item.
    Console(width=console.width if console.is_terminal else 250).print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
