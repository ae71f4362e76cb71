"""The commands as the command line runs them, on a database and run directories that the tests make."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dropbench.db.report.formats.listing import print_trials
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import open_store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import write_request
from dropbench.harness.suites.suite import load_suite
from dropbench.jobs.queue.request import request_suite
from tests.db.conftest import Call
from tests.db.records import attempt, make_directory, make_trial
from tests.paths import ROOT


@pytest.fixture
def runs(folder: Path) -> Path:
    """Two seeds without a regularizer, two with dropkey of which one failed, all of a suite, in a database."""
    runs, none = folder / "runs", RegularizerSpec(name="none")
    for seed, value in enumerate((80.0, 84.0)):
        make_directory(runs, make_trial(seed, regularizer=none), metrics={"test/accuracy": value}, suites=["mine"])
    make_directory(runs, make_trial(0), metrics={"test/accuracy": 85.5, "dev/accuracy": 86.0}, suites=["mine"])
    make_directory(runs, make_trial(1), attempts=[attempt("failed", "ValueError: =boom | x")], suites=["mine"])
    with open_store("sqlite:///dropbench.db") as store:
        rebuild(store, runs)
    return runs


def test_importing_the_commands_is_light() -> None:
    heavy = "sqlalchemy alembic pandas rich pydantic yaml torch"
    modules = "dropbench.db.cli.commands, dropbench.jobs.cli.query_commands"
    code = f"import sys, {modules}; print([name for name in '{heavy}'.split() if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"


def test_tables_need_no_torch(folder: Path, runs: Path) -> None:
    lines = ["report quickstart", "compare regularizer=none regularizer=dropkey", "compare --rank"]
    code = "import sys; from dropbench.harness.cli.main import run;"
    code += "print([run(line.split()) for line in sys.argv[1:]], 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *lines], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[0, 0, 0] False", done.stderr


def test_results_as_json(call: Call, runs: Path) -> None:
    done = call("results", "mine", "--json")
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)
    assert [(row["regularizer"], row["mean"], row["n"], row["state"]) for row in rows] == [
        ("dropkey", 85.5, 1, "failed"), ("none", 82.0, 2, "succeeded"),
    ]  # fmt: skip
    assert rows[1]["std"] == pytest.approx(8**0.5)
    assert call("results", "mine", "--format", "json").out == done.out
    assert json.loads(call("results", "failed", "--json").out)[0]["mean"] is None
    assert len(json.loads(call("results", "--metric", "accuracy", "--metric", "dev/accuracy", "--json").out)) == 3
    grouped = json.loads(call("results", "--group-by", "data,regularizer", "--json").out)
    assert [row["regularizer"] for row in grouped] == ["dropkey", "none"]


def test_results_as_a_table(call: Call, runs: Path) -> None:
    lines = [" ".join(line.split()) for line in call("results").out.splitlines()]
    assert lines[:5] == [
        "suite: mine", "task: text-classification", "data: trec", "model: text-transformer", "preset: mini",
    ]  # fmt: skip
    assert lines[5] == "regularizer metric mean n state"
    assert lines[7:] == ["dropkey:ratio=0.3 accuracy 85.50 1 failed", "none accuracy 82.00 ± 2.83 2 succeeded"]
    assert "| none | accuracy | 82.00 ± 2.83 | 2 | succeeded |" in call("results", "--format", "md").out
    assert r"none & accuracy & 82.00 $\pm$ 2.83 & 2 & succeeded \\" in call("results", "--format", "tex").out
    rows = list(csv.DictReader(io.StringIO(call("results", "--format", "csv").out)))
    assert (rows[1]["mean"], json.loads(rows[0]["params"])) == ("82.0", {"ratio": 0.3, "window": 1})


def test_results_into_a_file(call: Call, runs: Path, folder: Path) -> None:
    assert call("results", "--format", "csv", "-o", "out.csv").out == ""
    assert (folder / "out.csv").read_text(encoding="utf-8") == call("results", "--format", "csv").out
    call("results", "-o", "out.txt")
    assert "82.00 ± 2.83" in (folder / "out.txt").read_text(encoding="utf-8")
    done = call("results", "-o", "nowhere/out.txt")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "nowhere/out.txt: No such file or directory" in done.err
    done = call("results", "--format", "parquet")
    assert done.err == "dropbench: --format parquet: expected a file: `-o PATH`\n"


def test_no_device_is_replaced(call: Call, runs: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    done = call("results", "-o", "pipe")
    assert (done.code, done.err) == (2, "dropbench: pipe: not a regular file: expected a file in a writable folder\n")
    assert (folder / "pipe").is_fifo()


def test_parquet(call: Call, runs: Path, folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pandas

    assert call("results", "--format", "parquet", "-o", "out.parquet").code == 0
    assert list(pandas.read_parquet(folder / "out.parquet")["n"]) == [1, 2]
    assert call("db", "export", "tables", "--format", "parquet").code == 0
    assert len(pandas.read_parquet(folder / "tables" / "trials.parquet")) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results", "faild"], "did you mean failed"),
        (["results", "ratoi=1"], "did you mean ratio"),
        (["results", "--metric", "acuracy"], "did you mean accuracy"),
        (["results", "--group-by", "dta"], "did you mean data"),
        (["report", "quikstart"], "unknown suite 'quikstart': did you mean quickstart or quickstart/full?"),
        (["report", "nowhere.yaml"], "no such suite file"),
        (["report", "quickstart", "--preset", "maxi"], "did you mean mini?"),
        (["report", "quickstart", "--data", "mnist"], "unknown data of this table 'mnist'"),
        (["db", "sql", "SELEC 1"], "sql: near"),
        (["db", "sql", "DELETE FROM trials"], "sql: expected a statement that only reads"),
        (["db", "sql", "PRAGMA journal_mode = DELETE; DELETE FROM trials"], "one statement at a time"),
        (["db", "sql", "ATTACH 'other.db' AS other"], "sql: expected a statement that only reads"),
        (["db", "sql", "VACUUM INTO 'other.db'"], "sql: expected a statement that only reads"),
        (["db", "sql", "CREATE TEMP TABLE x (y)"], "sql: expected a statement that only reads"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(call: Call, runs: Path, folder: Path, arguments: list[str], message: str) -> None:
    done = call(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
    assert not (folder / "other.db").exists()
    assert len(json.loads(call("results", "--json").out)) == 2


def test_looking_makes_no_database(call: Call, folder: Path) -> None:
    assert json.loads(call("results", "--json").out) == []
    assert call("results").out.startswith("no results")
    assert json.loads(call("results", "quickstart", "--json").out) == []
    assert call("db", "sql", "SELECT 1").code == 2
    assert list(folder.iterdir()) == []


def test_report_of_the_quickstart(call: Call, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, report = load_suite("quickstart"), ("report", "quickstart")
    nothing = call(*report)
    assert nothing.code == 0
    assert nothing.out.count("not run") == len(suite.rows)
    requested = request_suite(suite, SuiteOptions(seeds=(0, 1)), Settings())
    write_request(folder / "runs", requested.request)
    for number, cell in enumerate(requested.request.cells):
        for seed, id in enumerate(cell.candidates[0].trials):
            make_directory(folder / "runs", requested.trials[id], metrics={"test/accuracy": 90.0 + number + seed})
    assert "Recorded 8 trials and 1 request from runs, 0 damaged" in call("db", "rebuild").out
    done = call(*report)
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[1] == "accuracy ↑ n Δ base"
    assert lines[3:7] == [
        "none 90.50 ± 0.71 2",
        "dropout 0.2 91.50 ± 0.71 2 +1.00",
        "dropkey 0.1, decreasing 92.50 ± 0.71 2 +2.00",
        "dropattention-e 0.2, w=2 93.50 ± 0.71 * 2 +3.00",
    ]
    assert max(map(len, done.out.splitlines())) <= 80
    content = json.loads(call(*report, "--json").out)
    assert [cell["mean"] for cell in content["cells"]] == [90.5, 91.5, 92.5, 93.5]
    assert content["cells"][2]["schedule"] == "decreasing"
    assert "| none | 90.50 ± 0.71 | 2 |  |" in call(*report, "--format", "md").out
    call(*report, "--format", "tex", "-o", "table.tex")
    assert r"\textbf{93.50 $\pm$ 0.71}" in (folder / "table.tex").read_text(encoding="utf-8")


def test_report_without_the_data(call: Call) -> None:
    done = call("report", "dropattention/table3", "--data", "trec")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("not run") == 5
    assert "88.40" in done.out


def test_rebuild_reports_damage(call: Call, runs: Path) -> None:
    file = runs / make_trial(0).id / "result.json"
    file.write_bytes(file.read_bytes()[:-9])
    done = call("db", "rebuild", "--json")
    content = json.loads(done.out)
    assert (done.code, content["recorded"], len(content["damaged"])) == (0, 3, 1)
    assert done.err.startswith("damaged: ")
    assert done.err.count("\n") == 1
    assert str(file.relative_to(runs.parent)) in done.err


def test_export(call: Call, runs: Path, folder: Path) -> None:
    done = call("db", "export", "out/tables", "--json")
    rows = {Path(entry["file"]).stem: entry["rows"] for entry in json.loads(done.out)}
    assert rows == {
        "configs": 2,
        "submissions": 0,
        "trials": 4,
        "requests": 4,
        "memberships": 4,
        "attempts": 1,
        "metrics": 4,
    }
    with (folder / "out/tables/attempts.csv").open(encoding="utf-8", newline="") as file:
        assert [row["cause"] for row in csv.DictReader(file)] == ["ValueError: =boom | x"]
    with (folder / "out/tables/configs.csv").open(encoding="utf-8", newline="") as file:
        assert {json.loads(row["config"])["data"]["name"] for row in csv.DictReader(file)} == {"trec"}
    again = call("db", "export", "out/tables")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists already" in again.err


def test_sql(call: Call, runs: Path) -> None:
    done = call("db", "sql", "SELECT state, COUNT(*) AS n, ':x %s' AS odd FROM trials GROUP BY state", "--json")
    assert json.loads(done.out) == [
        {"state": "failed", "n": 1, "odd": ":x %s"}, {"state": "succeeded", "n": 3, "odd": ":x %s"},
    ]  # fmt: skip
    lines = [" ".join(line.split()) for line in call("db", "sql", "SELECT cause FROM attempts").out.splitlines()]
    assert lines[0] == "cause"
    assert lines[2] == "ValueError: =boom | x"
    assert json.loads(call("db", "sql", "SELECT 9e999 AS big, NULL AS empty", "--json").out) == [
        {"big": None, "empty": None}
    ]


def test_results_of_single_trials(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store("sqlite:///dropbench.db") as store:
        print_trials([make_trial(0).id], store, as_json=True)
        rows = json.loads(capsys.readouterr().out)
        assert [(row["regularizer"], row["n"], row["state"]) for row in rows] == [("dropkey", 1, "succeeded")]
        print_trials([make_trial(0).id], store)
        assert "dropkey:ratio=0.3" in capsys.readouterr().out
