"""The counts of docs/comparison.md are those of its code, and the code of DropBench and Optuna runs as printed."""

from __future__ import annotations

import re
import runpy
import shlex
from functools import partial
from pathlib import Path

import pytest

import dropbench
from dropbench.harness.cli.main import run
from tests.docs.test_commands import one_step
from tests.harness.trials.test_plugins import restored
from tests.paths import DOCS

__all__ = ["one_step", "restored"]

TEXT = (DOCS / "comparison.md").read_text(encoding="utf-8")
TOOLS = ["DropBench", "lm-evaluation-harness", "benchopt", "Optuna"]
SECTIONS = TEXT.split("\n## ")[1:]
PLUG_INS = (DOCS / "plug-ins.md").read_text(encoding="utf-8")
NO_CODE = "–"


def blocks() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the blocks of code, as (language, content), by job and by the tool whose name starts a line above."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for section in SECTIONS:
        job, _, text = section.partition("\n")
        parts = re.split(rf"^({'|'.join(TOOLS)})(?=[:,]|\s\()", text, flags=re.MULTILINE)
        for tool, part in zip(parts[1::2], parts[2::2], strict=True):
            found[job, tool] = re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return found


BLOCKS = blocks()
ROWS = re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (.*) \|$", TEXT, re.MULTILINE)
TABLE = {job[:1].upper() + job[1:]: cells.split(" | ") for job, cells in ROWS}
"""The counts of each job, as texts."""


def code_of(job: str, tool: str, language: str = "python") -> str:
    return "".join(code for name, code in BLOCKS.get((job, tool), []) if name == language)


def count(job: str, tool: str) -> str:
    lines = [line.strip() for _, code in BLOCKS.get((job, tool), []) for line in code.splitlines()]
    return str(sum(1 for line in lines if line and not line.startswith("#")) or NO_CODE)


def test_the_counts_are_those_of_the_code() -> None:
    assert {job: [count(job, tool) for tool in TOOLS] for job in TABLE} == TABLE
    assert [job for job, tool in BLOCKS if tool == "DropBench"] == [*TABLE]
    for job, (ours, *theirs) in TABLE.items():
        assert all(int(ours) <= int(number) for number in theirs if number != NO_CODE), job


def test_the_code_on_models_and_tables_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot
    from torch import nn

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dropbench, "run", partial(dropbench.run, executor="debug", seeds=1))
    regularize, *on_tables = [*TABLE][:4]
    model = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    Path("model.py").write_text(code_of(regularize, "DropBench"))
    runpy.run_path("model.py", {"model": model})
    assert [site.ratio for site in dropbench.sites(model)] == [0.3]
    suite, plot, compare = (code_of(job, "DropBench") for job in on_tables)
    Path("tables.py").write_text(f"{suite}axes = {plot}compared = {compare}")
    names = runpy.run_path("tables.py")
    pyplot.close("all")
    assert names["frame"]["n"].tolist() == [1, 1, 1, 1]
    assert len(names["axes"].get_yticklabels()) == 4
    assert names["compared"].loc["regularizer.name"].tolist() == ["none", "dropattention-e"]


def test_the_code_of_optuna_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    monkeypatch.chdir(tmp_path)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    suite, _, compare, task = (code for job in TABLE if (code := code_of(job, "Optuna")))
    Path("study.py").write_text(f"{task}{suite}compared = {compare}".replace("n_trials=20", "n_trials=2"))
    names = runpy.run_path("study.py")
    assert names["compared"]["value"].between(0.2, 1).all()


def write_files(job: str) -> None:
    """Write the files that the page assumes (a model, reviews, and a checkpoint of transformers) and those of a job."""
    [model] = re.findall(r"^```python\n# patches.py\n(.*?)^```$", PLUG_INS, re.MULTILINE | re.DOTALL)
    Path("patches.py").write_text(model)
    Path("reviews").mkdir()
    rows = [f"a film of kind {number},{number % 2}" for number in range(40)]
    Path("reviews/reviews.csv").write_text("\n".join(["text,label", *rows]))
    if "checkpoint" in job:
        from transformers import BertConfig, BertModel, BertTokenizer

        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film"]
        BertTokenizer(vocab={word: number for number, word in enumerate(words)}).save_pretrained("tiny-bert")
        config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        BertModel(config).save_pretrained("tiny-bert")
    for language, code in BLOCKS[job, "DropBench"]:
        if language == "python":
            Path(code.split()[1]).write_text(code)


@pytest.mark.parametrize(
    ("job", "printed"),
    [
        pytest.param("Add a regularizer", "dropself", marks=pytest.mark.slow),
        ("Add a data set", "csv:reviews"),
        ("Add a model from a checkpoint", "transformers-encoder"),
        ("Add a model of my own", "my-patches"),
        ("Add a task", "top3"),
    ],
)
def test_the_code_with_commands_runs(
    job: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(job)
    command = shlex.split(code_of(job, "DropBench", "bash"))
    assert command[:2] == ["dropbench", "run"]
    fewer = ["--seeds", "1"] if command[2] == "quickstart" else []
    assert run([*command[1:], *fewer, "--executor", "debug"]) == 0, capsys.readouterr().err
    assert printed in capsys.readouterr().out
