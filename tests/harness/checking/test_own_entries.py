"""Each mistake in a plug-in is refused before anything is queued, by one line with the entry and its file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.checking import contract, once
from dropbench.harness.cli.main import run
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.cli.check_commands import ON_DIGITS
from tests.harness.checking.mistakes import AROUND, LOSS, MISTAKES, SHRINK
from tests.harness.checking.own_task import ENQUEUE, write

SLOW = {"classes of a set"}
"""Found by another process, as the order by hash is."""


@pytest.mark.parametrize("mistake", [pytest.param(key, marks=[pytest.mark.slow] * (key in SLOW)) for key in MISTAKES])
def test_a_mistake_is_refused_before_anything_is_queued(
    mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced, by, entry, message = MISTAKES[mistake]
    write(folder, (replaced, by))
    code = run([*ENQUEUE])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    assert entry in printed.err
    assert message in printed.err
    assert "own.py" in printed.err
    assert not (folder / "runs").exists()


REGULARIZER_MISTAKES = {
    "no effect": (AROUND.replace(" * (1 - site.ratio)", ""), "it changes neither the loss nor the gradients"),
    "NaN": (AROUND.replace("(1 - site.ratio)", "float('nan')"), "a training step makes embed.weight, "),
    "shape": (
        AROUND.replace("inner(call)", "inner(call)[:, :1]"),
        "Shrink returned (7, 1, 5, 4): expected a tensor of shape (7, 2, 5, 4)",
    ),
    "error": (AROUND.replace("site.ratio", "site.rate"), "own.py:75: AttributeError: "),
}


@pytest.mark.parametrize("mistake", REGULARIZER_MISTAKES)
def test_a_mistake_in_a_regularizer_is_refused(mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by, message = REGULARIZER_MISTAKES[mistake]
    write(folder, (AROUND, by))
    assert run([*ENQUEUE, "--regularizer", "shrink"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dropbench: {SHRINK}")
    assert (message in error, "own.py" in error, error.count("\n")) == (True, True, 1)
    assert not (folder / "runs").exists()


def test_a_regularizer_is_tried_with_shipped_tasks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, (AROUND, REGULARIZER_MISTAKES["no effect"][0]))
    assert run(["enqueue", "quickstart", "--seeds", "1", "--plugin", "own.py"]) == 2
    assert SHRINK in capsys.readouterr().err


def test_what_passes_is_tried_once_for_each_version(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    check = contract.check_contract

    def counted(trial: Trial, *rest: Any) -> list[str]:
        tried.append(trial.id)
        return check(trial, *rest)

    monkeypatch.setattr(contract, "check_contract", counted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    write(folder, ("NAMES = (", "print('hello')\nNAMES = ("))
    for _ in range(2):
        monkeypatch.setattr(once, "_passed", set())  # as in another process
        assert run([*ENQUEUE, "--regularizer", "shrink"]) == 0
    assert len(tried) == 1
    assert run(["check", "--plugin", "own.py", "--json"]) == 0
    printed = capsys.readouterr().out
    assert len(tried) == 3  # without the regularizer, and with it again
    assert run([*ENQUEUE, "--regularizer", "none"]) == 0
    assert len(tried) == 3
    items = json.loads(printed[printed.index("[") :])
    assert [item["state"] for item in items] == ["ok", "ok"]
    assert items[0]["regularizer"] == "none"
    assert items[1] | {"detail": ""} == {
        **ON_DIGITS, "regularizer": "shrink", "state": "ok", "detail": ""
    }  # fmt: skip


def test_shipped_entries_are_not_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "check_contract", None)
    words = ["enqueue", "--task", "image-classification", "--data", "digits", "--model", "vit-digits"]
    assert run([*words, "--regularizer", "dropkey"]) == 0


def test_the_command_lists_all_faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, (LOSS, LOSS.replace("[0]", "[0] * 2")), (AROUND, REGULARIZER_MISTAKES["error"][0]))
    assert run(["check", "--plugin", "own.py"]) == 2
    printed = capsys.readouterr().out
    assert "but that of loss_and_logits" in printed
    assert "AttributeError" in printed


def test_what_may_be_intended_passes_and_random_states_stay(folder: Path) -> None:
    """Attention outside of sites that is declared, and equal rows in a small domain."""
    replaced, by, *_ = MISTAKES["unregularized attention"]
    register = '@MODELS.register("attending", tasks=["points"]'
    write(folder, (replaced, by), (register, f'{register}, unreached="ignore"'))
    file = folder / "data/points/points.csv"
    file.write_text("\n".join("0.2,0.4" if number % 2 else "0.7,0.1" for number in range(100)))
    random.seed(7)
    torch.manual_seed(7)
    before = random.getstate(), torch.get_rng_state().tolist()
    assert run([*ENQUEUE]) == 0
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
