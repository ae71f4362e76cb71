"""The progress of `dropbench.run` in a Jupyter notebook."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import Any

from dropbench.db.store.store import TrialRow
from dropbench.jobs.queue.progress_bar import ProgressBar, describe_running
from dropbench.jobs.queue.train_progress import train_progress

MAX_LINES = 4
"""The last lines that are shown."""


def notebook_display() -> Any:
    """Return the module `IPython.display` in a notebook; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return import_module("IPython.display") if hasattr(shell, "kernel") else None


class NotebookProgress(ProgressBar):
    """A progress bar with the running trials and the last lines, in one output that is updated in place."""

    def __enter__(self) -> NotebookProgress:
        self.show_bars = False
        self.display = notebook_display()
        self.lines: list[str] = []
        self.running: list[str] = []
        self.shown = self._html()
        self.handle = self.display.display(self.display.HTML(self.shown), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.running = []
        self._show()

    def update(self, rows: Mapping[str, TrialRow]) -> None:
        """Show what has changed since the last update."""
        super().update(rows)
        self.running = []
        for id in (id for id, row in rows.items() if row.state == "running"):
            self.running.append(describe_running(self.trials[id], train_progress(self.runs / id)))
        self._show()

    def print_line(self, line: str) -> None:
        """Show a line below the bar."""
        self.lines.append(line)
        self._show()

    def _show(self) -> None:
        if (html := self._html()) != self.shown:
            self.shown = html
            self.handle.update(self.display.HTML(html))

    def _html(self) -> str:
        done, total = len(self.done), len(self.trials)
        lines = "\n".join([*self.lines[-MAX_LINES:], *self.running])
        bar = f'<progress value="{done}" max="{total}"></progress> {done} of {total} trials'
        return f"<div>{bar}<pre>{escape(lines)}</pre></div>"
