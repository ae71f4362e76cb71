"""Test the files that are submitted to GLUE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.run import analyze
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from tests.input_errors import one_line
from tests.tasks.data.text.test_glue import OFFICIAL, files
from tests.tasks.making import trial_of
from tests.training import run

SMALL = {"steps": 1, "model.layers": 1, "model.dim": 16, "model.heads": 2, "batch_size": 8}
HEADERS = {
    "cola": "index\tsentence",
    "rte": "index\tsentence1\tsentence2",
    "sts-b": "index\tgenre\tsentence1\tsentence2",
    "mnli": "index\tpairID\tgenre\tsentence1\tsentence2",
}


def trained(folder: Path, name: str, task: str) -> tuple[RunDirectory, Settings]:
    for file, content in files(name).items():
        (folder / file).write_bytes(content)
    settings = Settings(device="cpu", threads=1, folders={name: folder}, runs=folder / "runs")
    trial = trial_of(task, name, "text-transformer", SMALL, settings)
    result = run(settings.runs, trial, folders=settings.folders)
    directory = RunDirectory(settings.runs / trial.id)
    directory.write_result(result)
    return directory, settings


@pytest.mark.parametrize(
    ("name", "task", "written"),
    [
        ("cola", "text-classification", {"test.tsv": "CoLA.tsv"}),
        ("rte", "textual-entailment", {"test.tsv": "RTE.tsv"}),
        ("mnli", "textual-entailment", {"test_matched.tsv": "MNLI-m.tsv", "test_mismatched.tsv": "MNLI-mm.tsv"}),
        ("sts-b", "text-regression", {"test.tsv": "STS-B.tsv"}),
    ],
)
def test_the_official_test_set_is_predicted(tmp_path: Path, name: str, task: str, written: dict[str, str]) -> None:
    directory, settings = trained(tmp_path, name, task)
    with one_line(r"test(_matched)?\.tsv: not found: submission needs the official test file"):
        analyze(directory.id, "submission", Options("test", None), settings)
    rows = 11
    for file in written:
        columns = HEADERS[name].count("\t")
        lines = ["\t".join([str(row), *[f"He runs {7 * row} ."] * columns]) for row in range(rows)]
        (tmp_path / file).write_text("\n".join([HEADERS[name], *lines]) + "\n", encoding="utf-8")
    report = analyze(directory.id, "submission", Options("test", None), settings, tmp_path / "glue")
    assert {*written.values()} < {Path(file).name for file in report["files"]}
    for file in written.values():
        header, *lines = (tmp_path / "glue" / file).read_text(encoding="utf-8").splitlines()
        indices, predictions = zip(*(line.split("\t") for line in lines), strict=True)
        assert (header, indices) == ("index\tprediction", tuple(map(str, range(rows))))
        if name == "sts-b":
            assert all(0 <= float(score) <= 5 for score in predictions)
        else:
            assert {*predictions} <= {*OFFICIAL[name][2]}


def test_predictions_of_the_texts_of_test_are_those_of_the_trial(tmp_path: Path) -> None:
    directory, settings = trained(tmp_path, "rte", "textual-entailment")
    test = (tmp_path / "dev.tsv").read_text(encoding="utf-8")
    (tmp_path / "test.tsv").write_text(test, encoding="utf-8")
    own = Trained(directory, settings)
    task: Any = own.task
    findings = ANALYSES.get("submission")(own, Options("test", None))
    with own.evaluation_context():
        inputs, _ = task.batch("test", range(task.size("test")))
        expected = task.logits(own.model, inputs).argmax(dim=1).tolist()
    assert findings.arrays["test.tsv"].tolist() == expected


def test_data_of_another_benchmark_are_refused(tmp_path: Path) -> None:
    trial = trial_of("text-classification", "trec-synthetic", "text-transformer", SMALL)
    result = run(tmp_path, trial)
    RunDirectory(tmp_path / trial.id).write_result(result)
    with one_line("submission: data 'trec-synthetic': expected one of GLUE: cola, mnli"):
        analyze(trial.id, "submission", Options("test", None), Settings(device="cpu", runs=tmp_path))
