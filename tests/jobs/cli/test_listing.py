"""`dropbench list`: the parameters of models, and output to a pipe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from torch import nn

from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import Entry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.presets import Unregularized
from dropbench.harness.regularizers.spec import complete_spec, parameters
from dropbench.jobs.cli.inspect_commands import Kind
from dropbench.jobs.cli.listing import build_for_sample, list_items


@pytest.mark.parametrize("name", [name for name in MODELS if "sample" in MODELS.entry(name).facts])
def test_the_registered_number_of_parameters_is_correct(name: str) -> None:
    model = build_for_sample(name)
    assert MODELS.entry(name).facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_the_parameters_of_a_plug_in_are_counted() -> None:
    """A model without sample data, or that cannot be built, is listed without a number."""

    def build(name: str, options: dict[str, Any], classes: int) -> nn.Module:
        if not classes:
            raise InputError("no classes")
        return nn.Linear(2, classes)

    names = {"counted": {"sample": {"classes": 3}}, "broken": {"sample": {"classes": 0}}, "silent": {}}
    try:
        for name, facts in names.items():
            MODELS.register(name, help="mine", tasks=("image-classification",), **facts)(build)
        listed = {item["name"]: item["parameters"] for item in list_items("models")}
    finally:
        for name in names:
            MODELS._entries.pop(name, None)
    assert (listed["counted"], listed["broken"], listed["silent"]) == (9, None, None)


def test_models_are_listed_without_torch_and_one_per_line_in_a_pipe() -> None:
    program = (
        "import sys; from dropbench.harness.cli.main import run; code = run(['list', 'models']);"
        "print('HEAVY', sorted({'torch', 'timm', 'rich.table'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    head, _, *lines, heavy = done.stdout.splitlines()
    assert heavy == "HEAVY [] 0"
    assert head.split() == ["name", "parameters", "result_version", "help"]
    assert [line.split()[0] for line in lines] == list(MODELS)
    column = slice(head.index("parameters"), head.index("result_version"))
    assert {line[column].strip() for line in lines} >= {"136,138", "41,575,061"}


def test_one_item_or_those_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*arguments: str) -> list[str]:
        assert run(["list", *arguments, "--json"]) == 0
        return [item.get("name", item.get("suite")) for item in json.loads(capsys.readouterr().out)]

    assert listed("regularizers", "dropkey") == ["dropkey"]
    assert listed("models", "object-detection") == listed("models", "detr") == ["detr"]
    assert "trec" in listed("data", "text-classification")
    assert set(listed("published", "dropkey/table8")) == {"dropkey/table8"}
    assert run(["list", "models", "detr"]) == 0
    assert "object-detection" in capsys.readouterr().out
    assert run(["list", "suites", "quickstrat"]) == 2
    hint = "did you mean quickstart or quickstart/full?"
    assert capsys.readouterr().err == f"dropbench: unknown item of suites 'quickstrat': {hint}\n"


@pytest.mark.parametrize("libraries", ["sys", "torch, triton"])
def test_nothing_is_printed_at_exit(libraries: str) -> None:
    """Some libraries warn about objects that are alive when Python exits."""
    for library in libraries.split(", "):
        pytest.importorskip(library)
    program = f"import {libraries}, sys; from dropbench.harness.cli.main import main;"
    program += "sys.argv[1:] = ['list', 'tasks']; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "translation" in done.stdout


@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind not in ("recipe", "sites")])
@pytest.mark.parametrize("columns", [80, 60])
def test_names_are_whole_in_every_list_on_a_terminal(
    kind: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["list", kind]) == 0
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= columns
    words = {
        word for item in list_items(kind) for word in re.split("[ /,:-]", str(item.get("name", item.get("suite"))))
    }
    assert [word for word in words if word not in shown] == []


def test_names_are_whole_in_other_lists(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for words in (
        ["list", "data"],
        ["doctor"],
        ["list", "sites", "t2t-vit-digits"],
        ["list", "recipe", "image-classification", "vit-digits"],
        ["data", "fetch", "trec"],
    ):
        with monkeypatch.context() as terminal:
            terminal.setattr(sys.stdout, "isatty", lambda: True)
            assert run(words) in (0, 1)
        text = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert [line for line in text.splitlines() if len(line) > 80 and str(tmp_path) not in line] == [], words


@pytest.mark.parametrize("name", list(REGULARIZERS))
def test_a_card_is_printed_at_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "regularizers", name]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{name}: ")
    words = output.split()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in output.splitlines())
    if card := find_card(name):
        assert {card.url, *card.formula.split()} - {r"\qquad"} <= {*words}
        texts = (card.acts_on, *card.published, *card.open, *card.unsuitable)
        assert [text for text in texts if "".join(text.split()) not in "".join(words)] == []  # wraps after hyphens, too
    assert all(f"{key}=" in output for key in parameters(name))
    assert run(["list", "regularizers", name, "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)
    assert (item["card"] or {}).get("source") == (card.source if card else None)
    assert item["defaults"] == complete_spec(name).label()


def test_the_list_of_regularizers_says_what_each_acts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = Entry("mine", "my own", Unregularized, {"card": {}, "note": "x"}, str(tmp_path / "mine.py"))
    monkeypatch.setitem(REGULARIZERS._entries, "mine", entry)
    assert run(["list", "regularizers"]) == 2
    assert "card of regularizer 'mine': formula, source, url" in capsys.readouterr().err
    monkeypatch.setitem(REGULARIZERS._entries, "mine", replace(entry, facts={"note": "x"}))
    assert run(["list", "regularizers", "--json"]) == 0
    items = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert items["dropkey"]["acts_on"] == "keys of each query"
    assert items["mine"] == {"name": "mine", "acts_on": "", "note": "x", "help": "my own", "plugin": entry.plugin}


def test_the_sites_of_a_composition_show_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "layerdrop:ratio=0.3,schedule=increasing + drophead:ratio=0.2 + dropkey:ratio=0.3 + r-drop"
    arguments = ["list", "sites", "vit-digits", "--regularizer", spec]
    assert run(arguments) == 0
    assert "drophead 0.200, dropkey 0.300" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    ratios = [item["ratio"] for item in json.loads(capsys.readouterr().out)]
    assert ratios[:4] == [
        {"layerdrop": 0.0},
        {"drophead": 0.2, "dropkey": 0.3},
        {"layerdrop": pytest.approx(0.1)},
        ratios[1],
    ]
