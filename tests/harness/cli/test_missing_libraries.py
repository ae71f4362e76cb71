"""Without an optional library, a trial that needs it ends in one line before anything is queued; all else works."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dropbench.harness.errors import EXTRAS, NO_DEPS, missing_library
from tests.paths import ROOT

PROGRAM = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1].split(","))
import dropbench
from dropbench.harness.cli.main import run
for command in sys.argv[2:]:
    print(command, run(command.split()), file=sys.stderr)
"""
"""Blocks the libraries of the first argument, and runs the others as commands."""
DETECTION = "run --task object-detection --data coco-synthetic --model detr --preset mini"
TRANSLATION = "run --task translation --data multi30k-synthetic --model transformer-wmt-en-de --preset mini"
LABELLING = "run --task sequence-labelling --data wnut17-synthetic --model text-transformer --preset mini"
MMDET = f"`pip install 'dropbench[detection]'` and `{NO_DEPS['detection']}`"
FAIRSEQ = f"`pip install 'dropbench[translation]'` and `{NO_DEPS['translation']}`"
QUICKSTART = "enqueue quickstart --seeds 1 --set steps=2"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
slow = pytest.mark.slow


@slow
@pytest.mark.parametrize(
    "refused",
    [
        {"submitit": ("run quickstart", "this command needs submitit: `pip install dropbench`")},
        {"timm": ("run quickstart", "task 'image-classification' needs timm: `pip install dropbench`")},
        {
            "mmdet": (DETECTION, f"task 'object-detection' needs mmdet: {MMDET}"),
            "sacrebleu": (TRANSLATION, f"task 'translation' needs sacrebleu: {FAIRSEQ}"),
            "seqeval": (LABELLING, "task 'sequence-labelling' needs seqeval: `pip install dropbench`"),
        },
    ],
    ids=",".join,
)
def test_a_missing_library_is_one_line_before_anything_is_queued(
    refused: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    blocked = "timm" in refused
    works = ["list models", "--help", "status --json" if blocked else QUICKSTART]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DROPBENCH_DATA": str(tmp_path)}
    environment |= {"DROPBENCH_RUNS": str(tmp_path), "DROPBENCH_DB": f"sqlite:///{tmp_path}/trials.db"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(refused), *(command for command, _ in refused.values()), *works],
        capture_output=True, text=True, check=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    expected = [line for command, message in refused.values() for line in (f"dropbench: {message}", f"{command} 2")]
    assert lines[: len(expected)] == expected
    assert [f"{line} 0" for line in works] == [line for line in lines if line.removesuffix(" 0") in works]
    nothing_queued = '"queued": 0,' if blocked else "Added 4 trials (0 already present). 4 queued;"
    assert nothing_queued in done.stdout


EVERY_MODEL = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1].split(","))
import dropbench
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest
data = dict(pair.split("=") for pair in sys.argv[2:])
for model in MODELS:
    for task in MODELS.entry(model).facts["tasks"] if MODELS.entry(model).facts.get("weights") != "folder" else ():
        name = data.get(model.rpartition("-")[2], data[task])
        request = TrialRequest(task=task, data=name, model=model, overrides={})
        try:
            trial = TASKS.get(task).trial_for(request, Settings())
            TASKS.get(task).check(trial)
            print(task, model, "works")
        except InputError as error:
            print(task, model, error)
"""
"""Blocks libraries, and makes and checks a trial of every model, as `enqueue` does."""
SYNTHETIC = {
    "digits": "digits",
    "cifar": "cifar100-synthetic",
    "image-classification": "imagenet-synthetic",
    "object-detection": "coco-synthetic",
    "interaction-detection": "hico-det-synthetic",
    "mesh-recovery": "humbi-synthetic",
    "text-classification": "trec-synthetic",
    "sequence-labelling": "conll2003-synthetic",
    "textual-entailment": "snli-synthetic",
    "text-regression": "sts-b-synthetic",
    "multiple-choice": "swag-synthetic",
    "question-answering": "squad-synthetic",
    "translation": "multi30k-synthetic",
    "language-modelling": "wikitext-2-synthetic",
}
"""Data by the end of a model's name, or else by task."""
NEEDED_BY = {
    "timm": {"image-classification", "mesh-recovery"},
    "torchvision": {"image-classification", "mesh-recovery", "interaction-detection"},
    "transformers": {"bert-tiny", "bert-base", "learned-dropout-lm-moe"},
    "fairseq": {"translation"},
    "mmdet": {"object-detection", "interaction-detection"},
    "mmengine": {"object-detection", "interaction-detection"},
}
"""The tasks and models that need each library."""


@slow
@pytest.mark.parametrize("blocked", [("timm", "fairseq", "mmdet"), ("torchvision", "transformers"), ("mmengine",)])
def test_every_model_works_or_names_the_library(blocked: tuple[str, ...], tmp_path: Path) -> None:
    """Libraries that share no task are blocked together."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DROPBENCH_DATA": str(tmp_path)}
    pairs = [f"{task}={data}" for task, data in SYNTHETIC.items()]
    done = subprocess.run(
        [sys.executable, "-c", EVERY_MODEL, ",".join(blocked), *pairs],
        capture_output=True, text=True, check=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(lines) > 30
    for task, model, outcome in lines:
        needed = [library for library in blocked if {task, model} & NEEDED_BY[library]]
        if needed:
            assert outcome.partition("' ")[2].startswith(f"needs {needed[0]}: `"), (task, model, outcome)
        else:
            assert outcome == "works", (task, model)


def test_only_known_libraries_have_an_extra() -> None:
    assert missing_library(ModuleNotFoundError("No module named 'numpi'", name="numpi")) is None
    assert missing_library(ModuleNotFoundError()) is None
    assert missing_library(ImportError("cannot import name 'x' from 'timm'", name="timm")) is None
    assert missing_library(ModuleNotFoundError(name="timm.layers")) == "needs timm: `pip install dropbench`"


def test_extras_exist_and_their_second_commands_have_the_pinned_versions() -> None:
    optional = PYPROJECT["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) - {""} <= set(optional)
    for library, extra in EXTRAS.items():
        requirements = "\n".join(optional.get(extra, PYPROJECT["project"]["dependencies"]))
        distribution = {"cv2": "opencv", "hydra": "hydra-core", "pkg_resources": "setuptools"}.get(library, library)
        listed = distribution.replace("_", "-") in requirements
        assert listed or library in NO_DEPS.get(extra, "").replace("mmcv-lite", "mmcv")
    pinned = [word for command in NO_DEPS.values() for word in command.split() if "==" in word]
    assert sorted(pinned) == PYPROJECT["dependency-groups"]["unresolvable"]
