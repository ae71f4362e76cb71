"""The commands on data sets: ``dropbench data list|check|fetch``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tasks.data.check import Checked
    from tasks.data.dataset import Dataset

app = typer.Typer(no_args_is_help=True)
data = typer.Typer(no_args_is_help=True, help="Data sets: what there is, what it holds, where to get it.")
app.add_typer(data, name="data")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A data name, such as trec or trec-synthetic.")]
Folders = Annotated[
    list[str] | None, typer.Option("--data", metavar="NAME=PATH", help="Where a set lies, if not below the data root.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@data.command("list")
def list_data(folders: Folders = None, as_json: Json = False) -> None:
    """Every data set, and whether its files are here."""
    from harness.settings import Settings
    from tasks.data.check import listed
    from tasks.data.locate import parse_folders

    settings = Settings.from_environment(folders=parse_folders(folders or []))
    found = listed(settings)
    if as_json:
        typer.echo(json.dumps([entry.to_json() for entry in found], ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "task"):
        table.add_column(column, no_wrap=True)
    table.add_column("what")
    for entry in found:
        table.add_row(entry.dataset.name, entry.state, entry.dataset.kind, entry.dataset.help)
    Console(highlight=False).print(table)
    typer.echo(f"\nlooked for in {settings.data} (DROPBENCH_DATA); `dropbench data fetch NAME` says where to get a set")
    typer.echo("NAME-synthetic is a small generated set in the same format")


@data.command("check")
def check_data(
    name: Name,
    folders: Folders = None,
    quick: Annotated[bool, typer.Option("--quick", help="Count image files, but decode none.")] = False,
    as_json: Json = False,
) -> None:
    """Read all of a set; say its splits, classes and fingerprint, and where it differs from what was published."""
    from rich.console import Console
    from rich.progress import Progress

    from harness.settings import Settings
    from tasks.data.check import check
    from tasks.data.locate import locate, parse_folders

    settings = Settings.from_environment(folders=parse_folders(folders or []))
    source = locate(name, settings.data, settings.folders)
    # On standard error, so that standard output is the answer alone.
    with Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()) as bar:

        def started(rows: int) -> Callable[[], None]:
            task = bar.add_task("reading", total=rows)
            return lambda: bar.advance(task)

        checked = check(source, decode=not quick, progress=started)
    if as_json:
        typer.echo(json.dumps(checked.to_json(), ensure_ascii=False))
    else:
        _print_checked(checked)


@data.command("fetch")
def fetch_data(name: Name) -> None:
    """Say where to get a set and how to lay it out. Nothing is downloaded: the licence is yours to accept."""
    from tasks.data.catalog import DATASETS

    typer.echo(_instructions(name, DATASETS.get(name)))


def _print_checked(checked: Checked) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("split")
    columns = ["rows", *(["tokens"] if checked.tokens else [])]
    if checked.classes:
        columns += ["classes", "smallest class", "largest class"]
    for column in columns:
        table.add_column(column, justify="right")
    for split, rows in checked.rows.items():
        cells = [rows, *([checked.tokens[split]] if checked.tokens else [])]
        if checked.classes:
            # A subset may lack a class altogether, or all of them.
            numbers = [number for number in checked.class_rows[split].values() if number]
            cells += [len(numbers), min(numbers, default=0), max(numbers, default=0)]
        table.add_row(split, *(f"{cell:,}" for cell in cells))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{checked.source.name}: {checked.source.dataset.kind}, in {checked.source.folder}", markup=False)
    console.print(table)
    if checked.classes:
        shown = ", ".join(checked.classes[:12]) + (", …" if len(checked.classes) > 12 else "")
        console.print(f"{len(checked.classes)} classes: {shown}", markup=False)
    console.print(f"fingerprint {checked.fingerprint}")
    for note in checked.notes:
        console.print(f"note: {note}", markup=False)
    for difference in checked.differences():
        console.print(f"differs: {difference}", markup=False)


def _instructions(name: str, dataset: Dataset) -> str:
    from tasks.data.dataset import SYNTHETIC
    from tasks.data.locate import default_folder

    if name.endswith(SYNTHETIC):
        return f"{name} is generated in the format of {dataset.name} when it is first used: nothing to fetch"
    if dataset.package:
        return f"{name} comes with the Python package {dataset.package.split('/')[0]}: nothing to fetch"
    lines = [
        f"{dataset.name}: {dataset.help}",
        f"  from     {dataset.origin}",
        f"  get it   {dataset.home}",
        f"  licence  {dataset.licence}",
        f"  lay out  {default_folder(dataset)}/ (or anywhere, with --data {dataset.name}=PATH), with",
    ]
    layouts = [", ".join(layout.files) for layout in dataset.layouts]
    lines += [f"           {files}" for files in (layouts[0], *(f"or {files}" for files in layouts[1:]))]
    for entry in dataset.published:
        among = ", with those that are left out here" if entry.with_left_out else ""
        lines.append(f"  {entry.unit:<8} {entry.count:,} {entry.split} ({entry.where}{among})")
    lines += [f"  splits   {dataset.splits}", f"  then     dropbench data check {dataset.name}"]
    if dataset.synthetic:
        lines.append(f"  without  {dataset.name}{SYNTHETIC} is a small generated set in the same format")
    return "\n".join(lines)
