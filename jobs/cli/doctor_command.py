"""The command `dropbench doctor`: what works on this machine, in a library's model, or on the nodes of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from dropbench.db.cli.output import Json
from dropbench.harness.cli.completion import complete_regularizer, complete_source, complete_suite, one_of
from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.table import print_items
from dropbench.harness.errors import InputError
from dropbench.jobs.cli.options import complete_profile

app = typer.Typer(add_completion=False)

DEFAULT_REGULARIZER = "dropkey:ratio=0.3"


@app.command(
    epilog=examples(
        "doctor",
        "doctor --json",
        "doctor --model timm:vit_tiny_patch16_224",
        "doctor --model hf:bert-base --regularizer drophead",
        "doctor --profile a100 --suite dropkey/table1",
    )
)
def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:NAME",
            help="Check a library's model instead, with random input: timm:NAME, or hf:FOLDER with its config.json.",
            autocompletion=complete_source,
        ),
    ] = None,
    regularizer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help=f"The regularizer of the model.  [default: {DEFAULT_REGULARIZER}]",
            autocompletion=complete_regularizer,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check instead whether a job of this cluster profile can train a suite; waits for a small job.",
            autocompletion=complete_profile,
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="SUITE", help="The suite of the profile.", autocompletion=complete_suite)
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="The preset of the suite.", autocompletion=one_of("mini", "small", "paper")),
    ] = "paper",
    as_json: Json = False,
) -> None:
    """Report what works on this machine and what is missing, in a model, or before a suite is submitted."""
    from dropbench.harness.checking.machine import check_model, examine

    if (profile is None) != (suite is None):
        raise InputError(
            "--profile and --suite: expected both: they check whether the profile's jobs can train the suite"
        )
    if profile is not None and suite is not None:
        from dropbench.jobs.submission.readiness import check_readiness

        if model is not None:
            raise InputError("--model: expected no --profile")
        findings = check_readiness(profile, suite, preset)
    elif model is not None:
        findings = check_model(model, regularizer or DEFAULT_REGULARIZER)
    elif regularizer is not None:
        raise InputError("--regularizer: it is for a model: add `--model timm:NAME` or `--model hf:FOLDER`")
    else:
        findings = examine()
    print_items([finding._asdict() for finding in findings], as_json)
    if any(finding.state in ("missing", "fails") for finding in findings):
        raise typer.Exit(1)
