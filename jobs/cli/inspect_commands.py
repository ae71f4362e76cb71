"""The commands `dropbench list` and `dropbench analyze`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from dropbench.db.cli.completion import complete_filter
from dropbench.db.cli.output import Json
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.cli.completion import (
    Item,
    complete_analysis,
    complete_model,
    complete_regularizer,
    complete_run,
    complete_schedule,
    complete_suite,
    complete_task,
    one_of,
)
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.table import print_items
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.settings import DEVICES, Settings
from dropbench.jobs.cli.options import ShownData, ShownModel, ShownPreset, ShownRequest, with_folders
from dropbench.tasks.completion import complete_data

app = typer.Typer(rich_markup_mode=None)

Kind = Literal["tasks", "recipe", "models", "sites", "data", "regularizers", "schedules", "suites", "published"]
"""The kinds of items that can be listed."""

NAMES = {
    "tasks": complete_task, "recipe": complete_task, "models": complete_model, "sites": complete_model,
    "data": complete_data, "regularizers": complete_regularizer, "schedules": complete_schedule,
    "suites": complete_suite, "published": complete_suite,
}  # fmt: skip
"""The completion of their names."""


def _complete_listed(context: typer.Context, incomplete: str) -> list[Item]:
    """Complete a name of the kind that is listed."""
    return NAMES[context.params["kind"]](incomplete) if context.params.get("kind") in NAMES else []


def _complete_analyzed(context: typer.Context, incomplete: str) -> list[Item]:
    """Complete a trial, a suite or a filter, and after it an analysis."""
    words = context.params.get("words") or []
    filters = complete_filter(incomplete) if not words or "=" in words[-1] else []
    first = complete_analysis(incomplete) if words else complete_run(incomplete)
    return list({**dict(first), **dict(filters)}.items())


@app.command(
    "list",
    epilog=examples(
        "list suites",
        "list models text-classification",
        "list recipe text-classification transformers-encoder",
        "list sites vit-digits --regularizer dropkey:ratio=0.2",
    ),
)
def list_(
    kind: Annotated[Kind, typer.Argument(help="Kind of items to list.")],
    name: Annotated[
        str,
        typer.Argument(
            help="Only this item; for models and data, also those of this task; of sites: a model; of recipe: a task.",
            autocompletion=_complete_listed,
        ),
    ] = "",
    model: Annotated[
        str, typer.Argument(help="With recipe: also the options of this model.", autocompletion=complete_model)
    ] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    regularizer: Annotated[
        str,
        typer.Option(
            help="With sites: the regularizer to bind, as name:key=value,schedule=….",
            autocompletion=complete_regularizer,
        ),
    ] = "dropkey:ratio=0.3,schedule=decreasing",
) -> None:
    """List items of a kind, such as the keys of a task's recipe, or the sites of a model."""
    from dropbench.jobs.cli.listing import (
        card_lines,
        columns_of,
        list_items,
        list_sites,
        published_lines,
        regularizer_item,
    )

    if kind == "sites":
        if not name:
            raise InputError("list sites: expected a MODEL: run `dropbench list models`")
        print_items(list_sites(name, regularizer), as_json)
        return
    if kind == "recipe":
        if not name:
            raise InputError("list recipe: expected a TASK: run `dropbench list tasks`")
        from dropbench.tasks.recipe_keys import recipe_keys

        keys = recipe_keys(name, model)
        print_items(keys if as_json else [columns_of(key) for key in keys], as_json)
        return
    if model:
        raise InputError(f"list {kind} {name} {model}: expected one name: a second is for `list recipe TASK MODEL`")
    listed = list_items(kind)
    items = [item for item in listed if name in ("", *map(item.get, ("name", "suite", "kind")), *item.get("tasks", ()))]
    if name and not items:
        raise unknown_name(f"item of {kind}", name, {str(item.get("name", item.get("suite"))) for item in listed})
    if name and kind == "regularizers":
        items = [regularizer_item(name)]
        if not as_json:
            typer.echo("\n".join(card_lines(items[0])))
            return
    if kind == "published" and not as_json:
        items = published_lines(items)
    elif not as_json:  # readers of a table do not need import paths, and tasks make the list of models too wide
        hidden = ("spec", "published", "licence", "home", "folder", "synthetic", "" if name else "tasks")
        items = [{key: value for key, value in item.items() if key not in hidden} for item in items]
    print_items(items, as_json)
    if kind == "data" and not name and not as_json:
        typer.echo(f"\nSearched {Settings.from_environment().data} (DROPBENCH_DATA).")
        typer.echo("`dropbench data fetch NAME` prints how to obtain a set.")
        typer.echo("NAME-synthetic is a small generated set in the same format.")


@app.command(
    epilog=examples(
        "analyze 3fa9 entropy", "analyze dropattention/fig2", "analyze 'regularizer=dropkey preset=mini' occlusion"
    )
)
def analyze(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="ID|SUITE|FILTER… [KIND]",
            help=f"KIND: {', '.join(ANALYSES)}; not needed for a suite.",
            autocompletion=_complete_analyzed,
        ),
    ],
    *,
    preset: ShownPreset = None,
    data: ShownData = None,
    model: ShownModel = None,
    request: ShownRequest = None,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Split of the data.")] = "test",
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of random samples; default: all, for maps 4.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write here instead of to the run directory.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=one_of(*DEVICES))] = "auto",
    as_json: Json = False,
) -> None:
    """Analyze a trained trial (its id or the beginning), or all of a suite, or of a filter of `dropbench results`.

    Without KIND, a suite is analyzed for the metrics that it shows. Scalars are added to the results as KIND/NAME;
    figure and arrays are written to the run directory.
    """
    from dropbench.harness.analysis.options import Options
    from dropbench.jobs.cli.suite_analysis import analyze_trial, show_matching, show_table
    from dropbench.jobs.cli.suite_table import has_table, suite_table
    from dropbench.jobs.queue.reconcile import opened_results

    settings, names = with_folders(Settings.from_environment(device=device), data)
    kind = words.pop() if len(words) > 1 and set("=<>~").isdisjoint(words[-1]) else None
    name = " ".join(words)
    is_id = set(name) <= set("0123456789abcdef")
    if not is_id:
        for option, value in (("--samples", samples), ("--output", output), ("--split", split)):
            if value is not None and value != "test":
                raise InputError(f"{option} {value}: several trials use all test samples: pass a trial's id instead")
        with opened_results(settings) as store:
            if has_table(store, name):
                table = suite_table(store, name, preset, request, data=names, models=model or ())
                raise typer.Exit(not show_table(table, settings, store, store, kind, as_json=as_json, strict=True))
    for option, shown in (("--preset", preset), ("--model", model), ("--request", request)):
        if shown is not None:
            raise InputError(f"{option}: trial '{name}' defines it: use {option} only with a suite")
    if kind is None:
        raise InputError(f"analyze {name}: KIND is missing: expected one of {', '.join(ANALYSES)}")
    if not is_id:
        show_matching(name, kind, settings, as_json=as_json)
        return
    report = analyze_trial(name, kind, Options(split, samples), settings, output)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, indent=1))
        return
    rows = [{"metric": f"{report['kind']}/{key}", "value": value} for key, value in report["scalars"].items()]
    print_items(rows, as_json=False)
    typer.echo("\n".join(report["files"]), err=True)
