"""Run the examples of docs/your-model.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

from tests.paths import ROOT

TEXT = (ROOT / "docs/your-model.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in TEXT.split("\n## ")}
EXAMPLES = {
    title: code[0]
    for title, section in SECTIONS.items()
    if (code := re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
}


@pytest.mark.parametrize("title", EXAMPLES)
def test_example_runs(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[title])
    runpy.run_path(str(program), run_name="__main__")
    output = capsys.readouterr().out
    assert "attention sites of" in output
    for line in re.findall(r"^  blocks.*$", TEXT, re.MULTILINE):
        assert (line in output) == (title == "timm")
    if title.startswith("transformers"):
        assert (tmp_path / "bert-dropattention/final/config.json").exists()
