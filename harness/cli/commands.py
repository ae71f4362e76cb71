"""`dropbench doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what works on this machine and what is missing."""
    from harness.cli.doctor import examine
    from harness.cli.table import print_items

    findings = examine()
    print_items([finding._asdict() for finding in findings], as_json)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)
