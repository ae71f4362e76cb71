"""Train what the documentation quotes and write its results anew: `make results`, before a release.

Results are between two comments, the first of which names the command that prints them, and in the notebook.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from dropbench.harness.training.environment import processor

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
NOTEBOOK = ROOT / "docs/notebook.ipynb"
BLOCK = re.compile(r"(<!-- results of: dropbench ([^\n]*) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def update(pages: Iterable[Path]) -> None:
    """Replace the results in Markdown pages by what their commands print now, with the commit and the processor."""

    def replacement(block: re.Match[str]) -> str:
        origin = f"`dropbench {block[2]}` at commit `{commit()}` on {processor()}:"
        return f"{block[1]}{origin}\n\n```\n{output(block[2])}\n```\n{block[3]}"

    for page in pages:
        page.write_text(BLOCK.sub(replacement, page.read_text(encoding="utf-8")), encoding="utf-8")


@cache
def commit() -> str:
    """Return the commit of the working tree before this script changed it."""
    return subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True).strip()


def update_notebook(path: Path) -> None:
    """Execute a notebook in an empty folder, and store its outputs, with the commit and the processor."""
    nbclient, nbformat = import_module("nbclient"), import_module("nbformat")
    notebook = nbformat.read(path, as_version=4)
    origin = f"Outputs of commit `{commit()}` on {processor()}."
    notebook.cells[0].source = re.sub(r"Outputs of commit .*", origin, notebook.cells[0].source)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=None, resources=resources, record_timing=False).execute()
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, path)


def output(command: str) -> str:
    """Return what a command of `dropbench` prints in an empty folder, on a terminal of 80 columns."""
    words = [sys.executable, "-m", "dropbench.harness.cli.main", *shlex.split(command)]
    with tempfile.TemporaryDirectory() as folder:
        own = {name: value for name, value in os.environ.items() if name not in ("DROPBENCH_RUNS", "DROPBENCH_DB")}
        environment = {**own, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
        printed = subprocess.check_output(words, cwd=folder, env=environment, text=True)
    return "\n".join(line.rstrip() for line in printed.strip().splitlines())


if __name__ == "__main__":
    update(PAGES)
    update_notebook(NOTEBOOK)
