"""The command `python -m docs.reference`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from docs.reference.extend import extend as extend_file
from docs.reference.holes import SUITES, holes, tables
from dropbench.db.cli.output import opened
from dropbench.db.reference.archive import SHIPPED
from dropbench.db.reference.load import open_reference
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import write_atomic
from dropbench.harness.settings import Settings
from dropbench.harness.suites.suite import load_suite
from dropbench.jobs.queue.reconcile import refresh

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The file of reference results, for maintainers.")
File = Annotated[Path, typer.Option(metavar="PATH", help="The file; default: the one that is shipped.")]


@app.command()
def extend(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUNS…]", help="Folders of run directories.")] = None,
    file: File = SHIPPED,
    suite: Annotated[
        list[str] | None, typer.Option(metavar="SUITE", help="Only these suites, or your own .yaml files.")
    ] = None,
    commit: Annotated[str | None, typer.Option(help="Commit of the code, for runs that did not record it.")] = None,
) -> None:
    """Add the finished trials of the leaderboard's suites, and print what was added and what is missing."""
    settings = Settings.from_environment()
    suites = [load_suite(name) for name in suite or SUITES]
    content, extension = extend_file(file, runs or [settings.runs], suites, commit or _head(), plugins=file != SHIPPED)
    if not file.exists() or file.read_bytes() != content:
        write_atomic(file, content)
    typer.echo(
        f"{file}: added {count_of(len(extension.added), 'trial')}, {extension.present} already present;"
        f" now {count_of(extension.total, 'trial')}, {len(content):,} bytes"
    )
    if extension.removed:
        typer.echo(f"removed {count_of(extension.removed, 'trial')} with earlier result versions")
    for reason, number in extension.refused.most_common():
        typer.echo(f"refused {count_of(number, 'trial')}: {reason}")
    for id in extension.conflicts:
        typer.echo(f"conflict: trial {id} has other results than in the file, which are kept")
    with open_reference(str(file)) as reference, opened(settings) as own:
        refresh(own, settings)
        for table in tables([loaded.name for loaded in suites], reference):
            typer.echo("\n".join(holes(table, reference, own)))
    if extension.conflicts:
        raise typer.Exit(1)


@app.command()
def check(
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of trials.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the choice of trials.")] = 0,
    file: File = SHIPPED,
) -> None:
    """Run random trials again in temporary folders, and compare every metric bit for bit."""
    from docs.reference.check import all_equal, of_this_machine, rerun

    done = []
    settings = Settings.from_environment()
    with open_reference(str(file)) as reference:
        same = len(of_this_machine(reference, settings))
        typer.echo(f"{same} of {count_of(len(reference.states()), 'trial')} were trained on this kind of machine")
        for outcome in rerun(reference, trials, seed, settings):
            typer.echo(str(outcome))
            done.append(outcome)
    typer.echo(all_equal(done))
    if any(outcome.failed for outcome in done):
        raise typer.Exit(1)


def _head() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    return subprocess.check_output(command, cwd=Path(__file__).parent, text=True).strip()


def main() -> None:
    """Run the command; a user error is one line, and exit code 2."""
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
