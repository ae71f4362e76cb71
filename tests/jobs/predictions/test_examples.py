"""Predictions by example on trained trials, and their statistics against those of the libraries."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from sklearn.metrics import f1_score

import dropbench
from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import Header, Predictions, Ratio
from dropbench.harness.predictions.store import predictions_path
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.settings import Settings
from dropbench.jobs.predictions.comparison import align, compare_sides, describe_side
from dropbench.jobs.predictions.listing import list_disagreements
from dropbench.jobs.predictions.sides import Side, load_side
from dropbench.tables import Table
from dropbench.trial_run import TrialRun

Call = Callable[..., str]
OVERRIDES = {"steps": 12, "evaluate_every": 6, "model.layers": 1, "model.dim": 16, "model.heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two regularizers on texts, and a trial of a task without predictions."""
    folder = tmp_path_factory.mktemp("predictions")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for regularizer in ("none", "dropkey:ratio=0.5"):
            dropbench.run(
                task="text-classification", data="trec-synthetic", model="text-transformer", regularizer=regularizer,
                set=OVERRIDES, seeds=2, executor="debug",
            )  # fmt: skip
    return folder


@pytest.fixture(autouse=True)
def at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str, split: str = "test") -> str:
        assert run([*command(*arguments), "--examples", split]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return call


def command(*arguments: str) -> list[str]:
    """`compare` for two sides before the first option, `results` for one."""
    sides = next((number for number, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return ["compare" if sides == 2 else "results", *arguments]


def trial_of(words: str) -> Any:
    table: Table = dropbench.results(words)
    (trial,) = table.trials
    return trial


def test_a_listing_has_a_row_for_each_example(call: Call) -> None:
    trial = trial_of("regularizer=none seed=0")
    rows = json.loads(call(trial.id[:6], "--json"))
    assert [row["index"] for row in rows] == list(range(len(rows)))
    accuracy = 100 * np.mean([row["target"] == row["prediction"] for row in rows])
    assert accuracy == pytest.approx(trial.metrics["test/accuracy"])
    lines = csv.DictReader(io.StringIO(call(trial.id, "--format", "csv")))
    assert [line["prediction"] for line in lines] == [row["prediction"] for row in rows]
    table = call(trial.id, "--limit", "3")
    assert rows[2]["id"] in table
    assert rows[3]["id"] not in table
    assert f"{trial.metrics['test/accuracy']:.2f}" in table
    assert f"{len(rows)} examples" in table
    frame = trial.predictions("test")
    assert frame["prediction"].tolist() == [row["prediction"] for row in rows]
    assert frame["id"].tolist() == [row["id"] for row in rows]
    assert len(json.loads(call(trial.id, "--json", split="dev"))) == len(trial.predictions("dev"))


def test_two_trials_disagree_where_their_predictions_differ(call: Call) -> None:
    first, second = (trial_of(f"regularizer={name} seed=0") for name in ("none", "dropkey"))
    found = json.loads(call(first.id, second.id, "--json"))
    both = first.predictions().merge(second.predictions(), on=["id", "sample", "target"])
    different = both[both["prediction_x"] != both["prediction_y"]]
    rows = found["disagreements"]
    assert {row["id"] for row in rows} == {*different["id"]}
    assert [row["a"] for row in rows if row["id"] == different["id"].iloc[0]] == [different["prediction_x"].iloc[0]]
    (metric,) = found["metrics"]
    assert metric["only_a"] == int(((both["correct_x"] == 1) & (both["correct_y"] == 0)).sum())
    assert metric["change"] == pytest.approx(second.metrics["test/accuracy"] - first.metrics["test/accuracy"])
    assert metric["low"] <= metric["change"] <= metric["high"]
    table = call(first.id, second.id)
    assert f"{len(both)} examples in both, {len(rows)} predicted differently" in table
    Path("out.txt").unlink(missing_ok=True)
    assert call(first.id, second.id, "-o", "out.txt") == ""
    assert "p (McNemar)" in Path("out.txt").read_text(encoding="utf-8")


def test_rows_of_several_seeds_are_paired_by_seed(call: Call) -> None:
    (metric,) = json.loads(call("regularizer=none", "regularizer=dropkey", "--json"))["metrics"]
    pairs = [[trial_of(f"regularizer={name} seed={seed}") for seed in (0, 1)] for name in ("none", "dropkey")]
    values = np.array([[trial.metrics["test/accuracy"] for trial in trials] for trials in pairs])
    changes = values[1] - values[0]
    assert metric["seeds"] == 2
    assert metric["mcnemar"] is None
    assert (metric["a"], metric["change"]) == (pytest.approx(values[0].mean()), pytest.approx(changes.mean()))
    assert metric["seed_std"] == pytest.approx(changes.std(ddof=1))
    assert "(2)" in call("regularizer=none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ffffffffffff"], "no trial 'ffffffffffff'"),
        (["regularizer=none seed=7"], "no trained trial matches"),
        (["task=text-classification"], "matches 2 configurations: expected one"),
        (["regularizer=none seed=0", "regularizer=dropkey seed=0", "--examples", "train"], "train"),
        (["regularizer=none seed=0", "--sort", "mean"], "--examples test: lists single examples: expected no --sort"),
        (["regularizer=none seed=0", "--format", "md"], "--format md: expected table, json or csv with --examples"),
    ],
)
def test_invalid_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command(*arguments), *([] if "--examples" in arguments else ["--examples", "test"])]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_task_without_predictions_is_reported_and_its_model_evaluated(tmp_path: Path) -> None:
    trial = trial_of("regularizer=none seed=0")
    settings = Settings(runs=tmp_path)
    directory = Runs(shutil.copytree(Settings().runs / trial.id, tmp_path / trial.id).parent)[trial.id]
    predictions_path(directory.path, "test").unlink()
    with pytest.raises(InputError, match="has no predictions on test: task 'text-classification' stores none"):
        load_side(trial.id, "test", settings)
    evaluated = TrialRun(directory, settings).predictions("test")
    assert evaluated["prediction"].tolist() == trial.predictions("test")["prediction"].tolist()


def side(header: Header, *seeds: list[dict[str, Any]]) -> Side:
    return Side({number: Predictions(header, rows) for number, rows in enumerate(seeds)})


def header(rows: int, **changes: Any) -> Header:
    base: dict[str, Any] = {
        "format": 1, "trial": "0" * 12, "task": "t", "data": "d", "fingerprint": "f", "split": "test", "rows": rows,
        "columns": {"hits": "count", "found": "count", "true": "count"},
        "metrics": {"f1": Ratio(sum="hits", over=("found", "true"), scale=200.0)},
    }  # fmt: skip
    return Header(**{**base, **changes})


def test_the_bootstrap_of_a_ratio_resamples_its_counts() -> None:
    random = np.random.RandomState(0)
    sides = []
    for share in (0.5, 0.8):
        true, found = random.rand(2, 300) < np.array([[0.6], [share]])
        rows = [
            {"id": f"{n:012x}", "index": n, "hits": int(t and f), "found": int(f), "true": int(t)}
            for n, (t, f) in enumerate(zip(true, found, strict=True))
        ]
        sides.append((side(header(300), rows), true, found))
    (test,) = compare_sides(sides[0][0], sides[1][0])
    scores = [100 * f1_score(true, found) for _, true, found in sides]
    assert [test.a, test.b] == pytest.approx(scores)
    draws = random.randint(0, 300, (1000, 300))
    first, second = (
        200 * (true & found)[draws].sum(axis=1) / (true[draws].sum(axis=1) + found[draws].sum(axis=1))
        for _, true, found in sides
    )
    assert [test.low, test.high] == pytest.approx(np.quantile(second - first, [0.025, 0.975]), abs=1.0)
    (one,) = describe_side(sides[0][0])
    assert [one.low, one.high] == pytest.approx(np.quantile(first, [0.025, 0.975]), abs=1.0)


def test_bleu_is_compared_as_by_sacrebleu() -> None:
    random = np.random.RandomState(1)
    words = [f"word{n}" for n in range(30)]
    references = [" ".join(random.choice(words, 9)) for _ in range(120)]

    def noisy(share: float) -> list[str]:
        return [" ".join(w if random.rand() > share else "x" for w in line.split()) for line in references]

    systems = [noisy(0.2), noisy(0.24)]
    options: dict[str, str | bool] = {"language": "en", "tokenized": True}
    columns: Any = {"prediction": "text", "target": "text"}
    described = header(120, columns=columns, metrics={}, corpus={"bleu": {"scorer": "bleu", **options}})
    sides = [
        side(
            described,
            [
                {"id": f"{n:012x}", "index": n, "prediction": line, "target": reference}
                for n, (line, reference) in enumerate(zip(lines, references, strict=True))
            ],
        )
        for lines in systems
    ]
    (test,) = compare_sides(*sides)
    bleu = BLEU(tokenize="none", force=True)
    scores = [bleu.corpus_score(lines, [references]).score for lines in systems]
    assert [test.a, test.b] == pytest.approx(scores)
    _, results = PairedTest(
        list(zip("ab", systems, strict=True)), {"BLEU": bleu}, [references], test_type="bs", n_samples=2000
    )()
    expected: Any = results["BLEU"][1]
    assert test.p == pytest.approx(2 * expected.p_value, abs=0.03), "sacrebleu's p-value is one-sided"


def test_sides_are_aligned_by_the_ids_of_their_examples() -> None:
    rows = [{"id": f"{n:012x}", "index": n, "hits": n, "found": 4, "true": 4} for n in range(4)]
    first, second = align(side(header(4), rows), side(header(3), rows[:0:-1]))
    assert first.ids == second.ids == [row["id"] for row in rows[1:]]
    assert list_disagreements(first, second) == []
    with pytest.raises(InputError, match="no example in common"):
        align(side(header(1), rows[:1]), side(header(1), rows[1:2]))
    with pytest.raises(InputError, match="tasks t and other"):
        align(side(header(4), rows), side(header(4, task="other"), rows))
    two = side(header(4), rows, rows)
    other = replace(two, by_seed={seed + 2: predictions for seed, predictions in two.by_seed.items()})
    with pytest.raises(InputError, match="no seed in common"):
        align(two, other)
    other_metric = header(4, metrics={"f1": Ratio(sum="hits", over=("found",))})
    assert compare_sides(side(header(4), rows), side(other_metric, rows)) == []
