"""`dropbench list`: what it says of models, and what it prints where nobody looks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from torch import nn

from harness.errors import InputError
from harness.listing import build_for_sample, list_items
from harness.models import MODELS


@pytest.mark.parametrize("name", [name for name in MODELS if "sample" in MODELS.entry(name).facts])
def test_the_parameters_of_a_model_are_as_many_as_are_written_down(name: str) -> None:
    model = build_for_sample(name)
    assert MODELS.entry(name).facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_those_of_a_plugin_are_counted() -> None:
    """Where it says for what data; one that says nothing, or cannot be built, is listed without."""

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


def test_models_are_listed_without_torch_and_in_a_pipe_one_a_line() -> None:
    program = (
        "import sys; from harness.cli import run; code = run(['list', 'models']);"
        "print('HEAVY', sorted({'torch', 'timm', 'rich.table'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    head, *lines, heavy = done.stdout.splitlines()
    assert heavy == "HEAVY [] 0"
    assert head.split() == ["name", "parameters", "tasks", "help"]
    assert [line.split()[0] for line in lines] == list(MODELS)
    assert {line[: head.index("tasks")].split()[-1] for line in lines} >= {"136,138", "41,575,061"}


@pytest.mark.parametrize("libraries", ["sys", "torch, triton"])
def test_nothing_is_said_on_leaving(libraries: str) -> None:
    """Some libraries complain of objects that are alive when Python ends."""
    program = f"import {libraries}, sys; from harness.cli import main; sys.argv[1:] = ['list', 'tasks']; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "translation" in done.stdout
