"""Help that lists a command's options in named groups."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class GroupedCommand(TyperCommand):
    """A command whose help lists the options that have a `rich_help_panel` below its name, after the others."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            general = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or general, []).append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
