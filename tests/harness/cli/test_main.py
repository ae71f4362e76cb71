"""The command line: what it imports, how it answers mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dropbench.harness.cli.main import COMMANDS, hoist_plugins, run
from tests import forkserver
from tests.paths import ROOT

PLUGIN = """
import torch
from dropbench import REGULARIZERS, AttentionDrop


@REGULARIZERS.register("dropself")
class DropSelf(AttentionDrop):
    '''Every token may lose its own key.'''

    def sample_drop_mask(self, shape, site, device):
        own = torch.eye(shape[2], shape[3], dtype=torch.bool, device=device)
        return own & (torch.rand(shape, device=device) < site.ratio)
"""


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run(arguments, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **environment})


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, shell=True, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def test_help_names_every_command_and_loads_neither_torch_nor_a_model_library(tmp_path: Path) -> None:
    program = (
        "import sys; from dropbench.harness.cli.main import run; code = run(['--help']);"
        "heavy = {'torch', 'numpy', 'pydantic', 'sqlalchemy', 'submitit', 'yaml', 'timm'} & set(sys.modules);"
        "print('HEAVY', sorted(heavy), code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "HEAVY [] 0" in done.stdout
    for name, target in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert target.help.split()[0] in done.stdout


def test_a_double_dash_alone_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--"]) == 0
    assert "enqueue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu': did you mean run?"),
        (["list", "modles"], "'modles' is not one of 'tasks', 'recipe', 'models'"),
        (["list", "models", "--jsn"], "No such option: --jsn"),
        (["list"], "Missing argument"),
        (["list", "sites", "vit-digit"], "unknown model 'vit-digit': did you mean vit-digits"),
        (["list", "sites", "vit-digits", "--regularizer", "dropky"], "did you mean dropkey"),
        (["list", "sites", "vit-digits", "--regularizer", "dropkey:ratio=1"], "ratio=1: input should be"),
        (["--plugin"], "--plugin: expected a Python file"),
        (["run", "quickstrat"], "unknown suite 'quickstrat': did you mean quickstart or quickstart/full?"),
        (["run", "quickstart", "--regularizer", "dropkey:ratio=-0.1"], "ratio=-0.1: input should be greater"),
        (["run", "quickstart", "--regularizer", "dropkey:window=0"], "window=0: input should be greater"),
        (["run", "quickstart", "--regularizer", "dropkey:window=18"], "window=18: longer than the 17 keys"),
        (["run", "quickstart", "--regularizer", "dropkey-block:window=5"], "window=5: longer than the 4 keys"),
        (["run", "quickstart", "--set", "lrr=1"], "unknown recipe key 'lrr': did you mean lr"),
        (["run", "quickstart", "--set", "lr=fast"], "lr=fast: input should be a valid number"),
        (
            ["run", "quickstart", "--set", "model.deph=1"],
            "unknown option of model t2t-vit-digits 'deph': did you mean depth",
        ),
        (["run", "quickstart", "--preset", "papr"], "did you mean paper"),
        (["run", "quickstart", "--data", "trec"], "unknown data of quickstart 'trec'"),
        (["run", "--task", "image-clasification", "--data", "digits", "--model", "vit-digits"], "image-classification"),
        (
            ["run", "--task", "image-classification", "--data", "digits", "--model", "text-transformer"],
            "does not support",
        ),
        (["run", "--task", "image-classification", "--data", "digit", "--model", "vit-digits"], "did you mean digits"),
        (["run", "--task", "image-classification", "--data", "trec", "--model", "vit-digits"], "trec"),
        (["report", "quickstar"], "did you mean quickstart or quickstart/full?"),
        (["list", "sites", "zebra"], "known: bert-base, "),
        (["results", "a\udcff"], r"command 'results a\udcff': expected text in UTF-8"),
        (["results", "a\0"], r"command 'results a\x00': expected text in UTF-8"),
        (["results", "\x1b[2J\nx"], "unknown state, suite or trial id ' [2J x'"),
        (["run", "x" * 5000 + ".yaml"], ": File name too long"),
        (["run", "quickstart", "--data", "digits=" + "x" * 5000], ": File name too long"),
        (["run", "quickstart", "--data", "digits=~nobody.here/x"], "~nobody.here/x is not a folder"),
        (["run", "quickstart", "--weights", "~nobody.here/x"], "~nobody.here/x: expected a file"),
        (["db", "export", "x" * 5000], ": File name too long"),
        (["run", "quickstart", "--seeds", "100000000"], "--seeds"),
        (
            ["run", "quickstart", "--set", f"epochs={'9' * 4000}"],
            "overrides.epochs=inf: expected text, true, false, or a finite number",
        ),
        (["run", "quickstart", "--sweep", f"window=1..{'9' * 4000}"], "finite number"),
        (["status", "--watch", "--usage", "user"], "--usage: expected no --watch"),
        (["gc", "--older-than", "1e300"], "--older-than"),
        (["submit", "--preset", "paper"], "--preset: expected a SUITE to enqueue"),
        (["submit", "--weights", "hf:a/b"], "--weights: expected a SUITE to enqueue"),
        (["submit", "--keep-weights"], "--keep-weights: expected a SUITE to enqueue"),
        (["submit", "--data", "trec"], "--data trec: expected NAME=PATH, or a SUITE to enqueue"),
        (["submit", "quickstart", "ratio=0.3"], "write suite=quickstart as a filter"),
        (["compare", "none"], "expected two sides, OLD and NEW, or --rank, not 1"),
        (["compare", "--by", "ratio"], "--by ratio: expected --rank, too"),
        (["compare", "--rank", "--examples", "test"], "--examples test: expected no --rank"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dropbench: ")
    assert captured.err.removesuffix("\n").isprintable()
    assert message in captured.err
    assert not (tmp_path / "runs").exists()
    if (tmp_path / "dropbench.db").exists():  # what needs the model's library is looked at last
        with contextlib.closing(sqlite3.connect(tmp_path / "dropbench.db")) as database:
            assert database.execute("SELECT count(*) FROM trials").fetchone() == (0,)


def test_a_missing_data_set_says_what_is_expected_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DATA", "nowhere")
    assert run(["run", "dropattention/table3", "--data", "trec"]) == 2
    error = capsys.readouterr().err
    for word in ("trec", "TREC.train.all", "TREC.test.all", "nowhere", "trec-synthetic"):
        assert word in error
    assert error.count("\n") == 1


def test_a_plug_in_is_listed_wherever_its_option_stands(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(PLUGIN)
    for arguments in (["--plugin", "my.py", "list", "regularizers"], ["list", "regularizers", "--plugin=my.py"]):
        done = command(*arguments, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = {item["name"]: item for item in json.loads(done.stdout)}
        assert found["dropself"]["help"] == "Every token may lose its own key."
        assert "plugin" not in found["dropkey"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "my.py: No such file or directory"),
        ("x = (", "my.py:1: SyntaxError"),
        ("\n\nraise ValueError('no')", "my.py:3: ValueError: no"),
        (
            "from dropbench import REGULARIZERS\nREGULARIZERS.add('dropkey', 'a:b')",
            "my.py:2: ValueError: regularizer 'dropkey' is reg",
        ),
    ],
)
def test_a_plug_in_that_fails_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "my.py").write_text(content)
    done = command("list", "regularizers", "--plugin", "my.py", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_plug_ins_are_taken_from_anywhere_but_behind_a_double_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_PLUGINS", "/a.py")
    words = ["run", "--plugin", "/b.py", "x", "--plugin=/c.py", "--", "--plugin"]
    assert hoist_plugins(words) == ["run", "x", "--", "--plugin"]
    assert os.environ["DROPBENCH_PLUGINS"].split(os.pathsep) == ["/a.py", "/b.py", "/c.py"]


@pytest.mark.parametrize("kind", ["tasks", "models", "data", "regularizers", "schedules", "suites"])
def test_every_listing_is_json_with_names(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", kind, "--json"]) == 0
    items = json.loads(capsys.readouterr().out)
    assert items
    assert all(isinstance(item["name"], str) for item in items)
    if kind == "models":
        counts = {item["name"]: item["parameters"] for item in items}
        assert counts["deit-small"] == 22_050_664  # DeiT-S, Touvron et al. 2021, Table 1: 22 M


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [("list suites", "name"), ("report quickstart --plugin mine.py", "quickstart: ")],
)
def test_a_pipe_that_closes_is_no_error(tmp_path: Path, arguments: str, printed: str) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    command_line = f"'{sys.executable}' -m dropbench.harness.cli.main {arguments}"
    done = shell(f"({command_line}; echo $? > code) | head -n 1", tmp_path)
    assert done.stderr == ""
    assert printed in done.stdout
    assert (tmp_path / "code").read_text() == "0\n"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """Output to a device that is always full."""
    done = shell(f"'{sys.executable}' -u -m dropbench.harness.cli.main list suites --json > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("dropbench: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("variable", "value"), [("RUNS", "r\udcff"), ("DB", "x\udcff"), ("NUM_WORKERS", "9" * 5000)])
def test_a_setting_that_cannot_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"DROPBENCH_{variable}", value)
    assert run(["status"]) == 2
    assert capsys.readouterr().err.startswith(f"dropbench: DROPBENCH_{variable}")


def test_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged ``dropbench.toml`` is of no concern."""
    (tmp_path / "dropbench.toml").write_text("profiles = [")
    monkeypatch.chdir(tmp_path)
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{version('dropbench')}\n"


def test_the_version_needs_no_command_and_looks_at_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version", "rnu"]) == 0
    assert capsys.readouterr().out == f"{version('dropbench')}\n"


def test_help_keeps_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "--help"]) == 0
    assert "A [profiles.NAME] of" in " ".join(capsys.readouterr().out.split())


def test_a_table_has_no_import_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "tasks"]) == 0
    assert "dropbench.tasks.images" not in capsys.readouterr().out


def test_an_encoding_without_a_character(tmp_path: Path) -> None:
    program = "from dropbench.harness.cli import main; main.run = lambda arguments: print('1 ± −2') or 0; main.main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "1 \\xb1 \\u22122\n"
