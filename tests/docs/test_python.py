"""The examples of docs/python.md run one after another, and the notebook runs in a kernel."""

from __future__ import annotations

import json
import os
import re
import runpy
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import dropbench
from tests.docs.test_results import updating
from tests.paths import DOCS

__all__ = ["updating"]

TEXT = (DOCS / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def shortened(code: str) -> str:
    """Return code that trains two steps."""
    return re.sub(r'("?steps"?\s*[:=]\s*)\d+', r"\g<1>2", code)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(dropbench, "run", partial(dropbench.run, executor="debug"))
    (tmp_path / "python.py").write_text(shortened("".join(EXAMPLES)))
    names = runpy.run_path("python.py")
    pyplot.close("all")
    assert "attention sites of VisionTransformer" in capsys.readouterr().out
    assert names["table"].to_frame()["n"].tolist() == [3, 3, 3, 3]
    assert len(names["results"].records) == 4
    assert [names[name].trial.regularizer.name for name in ("first", "second")] == ["none", "dropkey"]
    assert not names["model"].training
    assert Path("quickstart.pdf").stat().st_size > 1000


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updating: ModuleType) -> None:
    for name in ("nbclient", "nbformat", "ipykernel", "ipywidgets"):
        pytest.importorskip(name)
    monkeypatch.delenv("MPLBACKEND")  # the kernel draws into the notebook
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # `update_notebook` sets it
    path = tmp_path / "notebook.ipynb"
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = shortened("".join(cell["source"]))
    path.write_text(json.dumps(notebook))
    updating.update_notebook(path)
    first, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert re.search(r"Outputs of commit `[0-9a-f]{7,}(-dirty)?` on .+\.$", "".join(first["source"]))
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    html = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert any("12 of 12 trials" in text for text in html)
    assert any('<th scope="row">dropkey 0.1, decreasing</th>' in text for text in html)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
