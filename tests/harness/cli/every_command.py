"""Every command of the command line, and the options that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from dropbench.harness.cli.main import app


def every_command() -> dict[str, Any]:
    """Return the commands by their words, such as ``db export``; groups are left out."""
    top: Any = get_command(app)
    return dict(_below(top, top.context_class(top, resilient_parsing=True), ""))


def _below(group: Any, context: Any, words: str) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _below(command, context, f"{words}{name} ")
        else:
            yield f"{words}{name}", command
