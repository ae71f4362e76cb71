"""The Python API on real, tiny runs: the same numbers as the command line's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dropbench
from dropbench import InputError
from dropbench.harness.cli.main import run as command
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.trials import plugins
from dropbench.harness.trials.task import TASKS
from dropbench.jobs.queue.progress_bar import ProgressBar
from dropbench.tables import Table
from tests.jobs.workplace import PLUGIN, SUITE

DIGITS = """
title: Two regularizers & <digits>
source: these tests
metric: accuracy
trial: {task: image-classification, data: digits, model: vit-digits, overrides: {model.depth: 1, model.embed_dim: 16}}
columns: [{label: ViT}]
rows:
  - {label: none, baseline: true, trial: {regularizer: none}, published: [90.5]}
  - {label: dropkey, trial: {regularizer: dropkey, params: {ratio: 0.3}}}
presets:
  mini: {seeds: 3, overrides: {steps: 8, evaluate_every: 4}}
"""
TINY: dict[str, Any] = {"task": "tiny", "data": "tiny", "model": "tiny", "plugin": PLUGIN, "executor": "debug"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; what a test registers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_loaded", {})
    for registry in (REGULARIZERS, TASKS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table]:
    """A folder with a trained suite, and its table."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "digits.yaml").write_text(DIGITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table = dropbench.run("digits.yaml", executor="debug")
    return folder, table


@pytest.fixture
def table(trained: tuple[Path, Table], monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.chdir(trained[0])
    return trained[1]


def test_a_table_is_that_of_the_command_line(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["report", "digits.yaml"]) == 0
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a kernel
    assert str(table) == repr(table) == capsys.readouterr().out.rstrip("\n")
    monkeypatch.delenv("FORCE_COLOR")
    assert command(["report", "digits.yaml", "--json"]) == 0
    assert table.records == json.loads(capsys.readouterr().out)["cells"]


def test_a_notebook_shows_the_table_of_the_page(table: Table) -> None:
    html = table._repr_html_()
    assert "Two regularizers &amp; &lt;digits&gt;" in html
    assert '<th scope="row">dropkey</th>' in html
    assert f'<span class="main">{table.records[1]["mean"]:.2f}</span>' in html
    assert "<button" not in html
    assert "<a " not in html


def test_a_frame_has_a_row_per_cell(table: Table) -> None:
    frame = table.to_frame()
    assert frame[["row", "column", "n", "published", "set.steps"]].values.tolist()[0] == ["none", "ViT", 3, 90.5, 8]
    assert frame["ratio"].isna().tolist() == [True, False]
    assert frame["unit"].tolist() == ["%", "%"]
    assert frame["drop_unit"].tolist()[1] == "element"
    values = [seed["value"] for seed in table.records[1]["trials"]]
    margin = 4.302653 * pd.Series(values).std() / 3**0.5  # Student's t at 97.5 % with two degrees of freedom
    assert frame["high"][1] - frame["mean"][1] == pytest.approx(margin)
    assert frame["mean"][1] - frame["low"][1] == pytest.approx(margin)
    assert {str(dtype) for dtype in frame[["mean", "delta_published", "p_value"]].dtypes} == {"float64"}


def test_a_plot_has_means_intervals_seeds_and_published_values(table: Table) -> None:
    from matplotlib import pyplot

    axes = table.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "dropkey"]
    assert axes.get_xlabel() == "accuracy (%)"
    points = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    frame = table.to_frame()
    assert [90.5] in points
    for record, low, high in zip(table.records, frame["low"], frame["high"], strict=True):
        assert [record["mean"]] in points
        assert [low, high] in points
        assert [seed["value"] for seed in record["trials"]] in points
    assert table.plot(ax=axes, row="dropkey") is axes
    pyplot.close("all")
    with pytest.raises(InputError, match="unknown column 'rows': did you mean row"):
        table.plot(rows="dropkey")
    with pytest.raises(InputError, match="nothing to plot"):
        table.plot(row="drop")


def test_results_are_those_of_the_command_line(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    found = dropbench.results("model=vit-digits regularizer=dropkey,none accuracy>=0", sort="-mean", limit=1)
    assert command(["results", "model=vit-digits", "accuracy>=0", "--sort", "-mean", "--limit", "1"]) == 0
    assert str(found) == capsys.readouterr().out.rstrip("\n")
    assert len(found.trials) == 6
    assert found.to_frame()["mean"].item() == max(record["mean"] for record in table.records)
    assert "<td>accuracy</td>" in found._repr_html_()
    pooled = dropbench.results(group_by="model", metric="accuracy,dev/accuracy", aggregate=["mean", "std", "n"])
    assert pooled.to_frame()["low"].isna().all()
    with pytest.raises(InputError, match="metrics accuracy, dev/accuracy: pass one"):
        pooled.plot()
    axes = dropbench.results().plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dropkey:ratio=0.3", "none"]
    axes.figure.clear()


def test_without_results_a_table_names_the_command() -> None:
    empty = dropbench.results()
    assert str(empty) == "no results: run `dropbench run SUITE`"
    assert str(empty) in empty._repr_html_()
    assert empty.trials == []
    assert empty.to_frame().empty
    with pytest.raises(InputError, match="nothing to plot"):
        empty.plot()


def test_a_trial_has_its_curves_model_and_predictions(table: Table) -> None:
    first = table.trials[3]
    trial = dropbench.trial(first.id[:8])
    assert (trial.id, trial.state, trial.trial.seed) == (first.id, "succeeded", 0)
    assert repr(trial) == f"<TrialRun {trial.id} vit-digits, dropkey, digits, seed 0>"
    history = trial.history()
    assert history.index.name == "step"
    assert history["dev/accuracy"].dropna().index.tolist() == [4, 8]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = trial.model()
    predictions = trial.predictions()
    assert torch.equal(torch.rand(3), expected)
    assert not model.training
    assert [site.ratio for site in dropbench.sites(model)] == [0.3]
    assert predictions["sample"].tolist() == list(range(359))
    correct = predictions["target"] == predictions["prediction"]
    assert 100 * correct.mean() == pytest.approx(trial.metrics["test/accuracy"])
    assert predictions["probability"].between(0.1, 1).all()
    assert list(trial.predictions("train")) == [*predictions][:-1], "evaluated now, so without ids"
    with pytest.raises(InputError, match="unknown split 'tset': did you mean test"):
        trial.predictions("tset")  # type: ignore[arg-type]


def test_two_trials_compare_by_their_differences_and_final_values(table: Table) -> None:
    first, second = table.trials[0], table.trials[4]
    values = dict(first.compare(second).T.items())
    assert values["regularizer.name"].to_dict() == {first.id: "none", second.id: "dropkey"}
    assert [*values["seed"], *values["regularizer.params.ratio"]] == ["0", "1", "–", "0.3"]
    assert not [field for field in values if str(field).startswith(("data", "model", "recipe"))]
    assert [*values["test/accuracy"]] == [trial.metrics["test/accuracy"] for trial in (first, second)]


def test_predictions_of_tags_are_per_word(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"steps": 1, "model.layers": 1, "model.dim": 16, "model.heads": 2}
    table = dropbench.run(
        task="sequence-labelling", data="conll2003-synthetic", model="text-transformer", set=overrides, executor="debug"
    )
    [trial] = table.trials
    words = trial.predictions("dev")
    assert list(words) == ["sample", "word", "target", "prediction", "probability", "id"]
    accuracy = 100 * (words["target"] == words["prediction"]).mean()
    assert accuracy == pytest.approx(trial.metrics["dev/accuracy"])
    assert words["word"][words["sample"] == 0].tolist() == list(range((words["sample"] == 0).sum()))


def test_an_interrupted_run_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tiny.yaml").write_text(SUITE)

    def interrupt(bar: ProgressBar, rows: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt)
        with pytest.raises(KeyboardInterrupt, match="Stopped: 0 of 2 trials done") as caught:
            dropbench.run("tiny.yaml", seeds=1, plugin=PLUGIN, executor="debug")
    render: Any = getattr(caught.value, "_render_traceback_")  # noqa: B009 - of IPython
    assert render() == ["Stopped: 0 of 2 trials done. The same call continues."]
    table = dropbench.run("tiny.yaml", seeds=1, plugin=PLUGIN, executor="debug")
    assert table.to_frame()["n"].tolist() == [1, 1]
    with pytest.raises(InputError, match="task 'tiny' predicts no classes"):
        table.trials[0].predictions()


def test_failed_trials_are_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "fault").write_text("input 0")
    monkeypatch.setenv("TINY_FAULT", str(folder / "fault"))
    with pytest.warns(UserWarning, match="1 of 1 trial failed or cancelled: run `dropbench retry failed`"):
        table = dropbench.run(**TINY)
    assert table.records[0]["state"] == "failed"
    [trial] = table.trials
    assert trial.state == "failed"
    assert trial.history().empty
    with pytest.raises(InputError, match="has no result yet"):
        trial.model()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "quikstart"}, "did you mean quickstart"),
        ({"seeds": 0}, "seeds=0: expected a number from 1 to 10000"),
        ({"seeds": "3"}, "seeds='3': expected a number"),
        ({"parallel": 0}, "parallel=0: expected a number of at least 1"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds=-1: expected a number from 0"),
        ({"executor": "slurm"}, "unknown executor 'slurm'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"model": 3}, "model=3: expected a string, or a list of strings"),
        ({"model": ["vit-digits", 3]}, "model=3: expected a string"),
        ({"preset": "a\0"}, "expected text in UTF-8 without NUL"),
        ({"set": {"stepz": 1}}, "stepz"),
        ({"set": "steps"}, "expected key=value"),
        ({"task": "tiny"}, "suite quickstart defines it"),
        ({"suite": None}, "nothing to run"),
        ({"plugin": "none.py"}, "plug-in none.py: No such file"),
    ],
)
def test_invalid_arguments_are_input_errors(arguments: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(InputError, match=message):
        dropbench.run(**{"suite": "quickstart", **arguments})
    assert list(folder.iterdir()) == []


def test_unknown_trials_and_conditions_are_input_errors() -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: dropbench.trial("ec35"), "no trial 'ec35' in runs"),
        (lambda: dropbench.results("regularizr=dropkey"), "did you mean regularizer"),
        (lambda: dropbench.results(limit=0), "limit=0"),
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_a_regularizer_of_the_program_itself_is_refused() -> None:
    @REGULARIZERS.register("own")
    class Own(AttentionDrop):
        """Defined in a notebook."""

        def sample_drop_mask(self, shape: tuple[int, ...], site: Any, device: Any) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.bool, device=device)

    with pytest.raises(InputError, match=rf"regularizer 'own' is of {__name__}: write it to a file"):
        dropbench.run("quickstart", regularizer="own:ratio=0.3", executor="debug")


def test_a_notebook_shows_progress_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)

    def show(html: str, display_id: bool) -> SimpleNamespace:
        shown.append(html)
        return handle

    display = SimpleNamespace(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    dropbench.run(**TINY, seeds=2)
    assert '<progress value="0" max="2"></progress> 0 of 2 trials' in shown[0]
    assert '<progress value="2" max="2"></progress> 2 of 2 trials' in shown[-1]
    assert "none, tiny, seed 1: succeeded" in shown[-1]
