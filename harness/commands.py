"""`dropbench list` and `dropbench doctor`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

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
