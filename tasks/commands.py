"""Commands for data sets: ``dropbench data check|fetch``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from dropbench.harness.cli.examples import examples
from dropbench.harness.errors import count_of
from dropbench.tasks.completion import complete_data

app = typer.Typer(no_args_is_help=True)
data = typer.Typer(no_args_is_help=True, help="Check and obtain data sets. `dropbench list data` lists them.")
app.add_typer(data, name="data")

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A data name, such as trec or trec-synthetic.", autocompletion=complete_data),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@data.command("check", epilog=examples("data check trec", "data check cifar10=/scratch/cifar --quick"))
def check_data(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[=PATH]", help="A data name, such as trec, and its folder.", autocompletion=complete_data
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Count image files, but decode none.")] = False,
    as_json: Json = False,
) -> None:
    """Read a whole set; print its splits, classes and fingerprint, and its differences from the published sizes."""
    from rich.console import Console
    from rich.progress import Progress

    from dropbench.harness.cli.table import print_table
    from dropbench.harness.cli.text_table import TextTable
    from dropbench.harness.settings import Settings
    from dropbench.tasks.data.check import check
    from dropbench.tasks.data.locate import locate, parse_folders

    settings = Settings.from_environment(folders=parse_folders([name] * ("=" in name)))
    source = locate(name.partition("=")[0], settings.data, settings.folders)
    # The progress bar goes to standard error, so that standard output holds only the result.
    with Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()) as bar:

        def start(rows: int) -> Callable[[], None]:
            task = bar.add_task("reading", total=rows)
            return lambda: bar.advance(task)

        checked = check(source, decode=not quick, progress=start)
    if as_json:
        typer.echo(json.dumps(checked.to_json(), ensure_ascii=False))
        return
    columns = ["split", "rows", *(["tokens"] if checked.tokens else [])]
    if checked.class_rows:
        columns += ["classes", "smallest class", "largest class"]
    lines = []
    for split, rows in checked.rows.items():
        cells = [rows, *([checked.tokens[split]] if checked.tokens else [])]
        if checked.class_rows:
            # A subset may lack some classes, or all of them.
            sizes = [size for size in checked.class_rows[split].values() if size]
            cells += [len(sizes), min(sizes, default=0), max(sizes, default=0)]
        lines.append([split, *(f"{cell:,}" for cell in cells)])
    typer.echo(f"{source.name}: {source.dataset.kind}, in {source.folder}")
    print_table(TextTable.of_rows(columns, lines))
    if checked.classes:
        names = ", ".join(checked.classes[:12]) + (", …" if len(checked.classes) > 12 else "")
        typer.echo(f"{count_of(len(checked.classes), 'class', 'classes')}: {names}")
    typer.echo(f"fingerprint {checked.fingerprint}")
    for note in checked.notes:
        typer.echo(f"note: {note}")
    for difference in checked.differences():
        typer.echo(f"differs: {difference}")


@data.command("fetch", epilog=examples("data fetch cifar100"))
def fetch_data(name: Name, as_json: Json = False) -> None:
    """Print how to obtain a set and lay out its files. Nothing is downloaded: the license is yours to accept."""
    from dropbench.harness.cli.table import print_facts
    from dropbench.tasks.data import DATASETS, SYNTHETIC
    from dropbench.tasks.data.locate import default_folder

    dataset = DATASETS.get(name)
    if as_json:
        stated = {"help", "origin", "home", "licence", "layouts", "published", "splits", "package"}
        content = {"name": name, **dataset.model_dump(mode="json", include=stated)}
        content |= {"folder": str(default_folder(dataset)), "synthetic": name.endswith(SYNTHETIC)}
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    if name.endswith(SYNTHETIC):
        typer.echo(f"{name} is generated in the format of {dataset.name} on first use: nothing to fetch")
        return
    if dataset.package:
        typer.echo(f"{name} is included in the Python package {dataset.package.split('/')[0]}: nothing to fetch")
        return
    typer.echo(f"{dataset.name}: {dataset.help}")
    first, *others = (", ".join(layout.files) for layout in dataset.layouts)
    facts = [
        ("from", dataset.origin),
        ("get it", dataset.home),
        ("license", dataset.licence),
        ("lay out", f"{default_folder(dataset)}/ (or anywhere, with --data {dataset.name}=PATH), with"),
        ("", first),
        *(("", f"or {files}") for files in others),
    ]
    if optional := dict.fromkeys(file for layout in dataset.layouts for file in layout.optional):
        facts.append(("optional", ", ".join(optional)))
    for entry in dataset.published:
        excluded = ", including rows excluded here" if entry.with_left_out else ""
        facts.append((entry.unit, f"{entry.count:,} {entry.split} ({entry.where}{excluded})"))
    facts += [("splits", dataset.splits), ("then", f"dropbench data check {dataset.name}")]
    if dataset.synthetic:
        facts.append(("without", f"{dataset.name}{SYNTHETIC} is a small generated set in the same format"))
    print_facts([(key, value) for key, value in facts if value])
