"""The examples of docs/python.md run one after another, and the notebook runs in a kernel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import update_results
from tests.paths import DOCS
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest

TEXT = (DOCS / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

COMMIT = "0" * 40

IN_PROCESS = """\
from functools import partial
import dropbench
dropbench.run = partial(dropbench.run, executor="debug")
"""
CHECKS = """
assert table.to_frame()["n"].tolist() == [1, 1, 1, 1]
assert len(results.records) == 4
assert [one.trial.regularizer.name for one in (first, second)] == ["none", "dropkey"]
assert not model.training
"""

STOPPED = """\
import subprocess, sys, pathlib
from dropbench.harness.runs.run_directory import RunDirectory
trial = table.trials[0].trial
stopped = trial.model_copy(update={"recipe": {**trial.recipe, "steps": 9}})
RunDirectory.create(pathlib.Path("runs"), stopped)
done = subprocess.run([sys.executable, "-m", "dropbench", "db", "rebuild"], check=True, capture_output=True)
assert stopped.id in dropbench.results("seed=0 regularizer=none").ids
"""
"""Leaves a trial that was stopped beside those of the table."""


def shortened(code: str) -> str:
    """Return code that trains two steps."""
    return re.sub(r'("?steps"?\s*[:=]\s*)\d+', r"\g<1>2", code).replace('"epochs": 8', '"steps": 2')


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path) -> None:
    code = (
        shortened("".join(EXAMPLES)).replace("seeds=3", "seeds=1").replace("import dropbench\n", IN_PROCESS, 1) + CHECKS
    )
    (tmp_path / "page.py").write_text(code)
    environment = {**os.environ, "DROPBENCH_RUNS": str(tmp_path / "runs")}
    # A fresh interpreter: the order of the page's imports matters.
    page = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert page.returncode == 0, page.stderr
    assert "attention sites of VisionTransformer" in page.stdout
    assert (tmp_path / "quickstart.pdf").stat().st_size > 1000


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The model that it names on the hub is in the cache, a small one."""
    for name in ("nbclient", "nbformat", "ipykernel", "ipywidgets"):
        pytest.importorskip(name)
    monkeypatch.delenv("MPLBACKEND")  # the kernel draws into the notebook
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # `update_notebook` sets it
    cached = tmp_path / "hub/models--sentence-transformers--all-MiniLM-L6-v2"
    shutil.copytree(bert, cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(COMMIT)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "notebook.ipynb"
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = shortened("".join(cell["source"]))
    run = next(cell for cell in notebook["cells"] if "dropbench.run(" in cell["source"])
    notebook["cells"].insert(
        notebook["cells"].index(run) + 1, {**run, "id": "stopped", "source": STOPPED, "outputs": []}
    )
    path.write_text(json.dumps(notebook))
    update_results.update_notebook(path)
    first, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert re.search(r"Outputs of commit `[0-9a-f]{7,}(-dirty)?` on .+\.$", "".join(first["source"]))
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    html = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert any("12 of 12 trials" in text for text in html)
    assert any('<th scope="row">dropkey 0.1, decreasing</th>' in text for text in html)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert sum('<th scope="row">r-drop</th>' in text for text in html) == 2, "all weights, and LoRA"
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
