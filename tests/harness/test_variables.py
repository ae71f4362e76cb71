"""Variables of the environment do not change what a trial computes; those that may change its digits are recorded."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from dropbench.harness.files import read_json
from dropbench.harness.variables import LAUNCHER, RECIPE, RECORDED, without_variables
from tests.training import curve, make_trial, run

TRAINING = {
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
    "ACCELERATE_USE_FSDP": "true",
}


def test_what_a_library_would_obey_changes_no_number(tmp_path: Path) -> None:
    trial = make_trial(steps=8, evaluate_every=8, accumulate=2)
    expected = run(tmp_path / "without", trial)
    for name, value in TRAINING.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            assert run(tmp_path / name, trial) == expected, name
            assert curve(tmp_path / name, trial) == curve(tmp_path / "without", trial), name
            assert os.environ[name] == value


def test_other_variables_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("HF_TOKEN", "secret")
    trial = make_trial(steps=1)
    run(tmp_path, trial)
    variables = read_json(tmp_path / trial.id / "environment.json")["variables"]
    assert variables["MKL_CBWR"] == "COMPATIBLE"
    assert "secret" not in variables.values()


def test_variables_are_put_back_and_those_set_meanwhile_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_A", "1")
    monkeypatch.delenv("ACCELERATE_B", raising=False)
    with without_variables(*RECIPE):
        assert "ACCELERATE_A" not in os.environ
        os.environ["ACCELERATE_B"] = "2"
    assert (os.environ["ACCELERATE_A"], os.environ.get("ACCELERATE_B")) == ("1", None)


READ = re.compile(
    r"(?:environ(?:\.get|\.setdefault|\.pop)?\s*[\[(]|getenv\(|from_env\()\s*\[?\s*[\"']([A-Z][A-Z0-9_]+)[\"']"
    r"|[\"']([A-Z][A-Z0-9_]+)[\"'] in os\.environ"
)
"""A variable that Python code reads."""
LIBRARIES = {
    "accelerate": (), "timm": (), "fairseq": (), "mmengine": (), "mmcv": (), "mmdet": (),
    "transformers": ("models", "testing_utils.py"),
    "torch": ("testing", "distributed", "_inductor", "_dynamo", "onnx", "utils"),
}  # fmt: skip
"""Libraries, with folders and files that no trial runs, or whose variables begin with TORCH."""
NO_NUMBERS = (
    "AWS_", "BRANCH", "CI", "CLEARML_", "COMET_", "DATABRICKS_", "DISABLE_", "ECS_", "HF_", "KUBEFLOW_", "MAST_",
    "MLFLOW_", "RAY_", "SAGEMAKER_", "SM_", "SMDATAPARALLEL_", "SWANLAB_", "TENSORBOARD_", "TRAINING_JOB_", "WANDB_",
    "VSCODE_", "NETWORK_DEBUG_", "COMPILE_STROBELIGHT_", "ENABLE_PYTORCH_EXECUTION_TRACE", "KINETO_", "TEARDOWN_CUPTI",
    "DEBUG_", "AOT_PARTITIONER_DEBUG", "FX_GRAPH_SHOW_", "XDG_", "USER", "PATH", "LD_", "CONDA_", "VIRTUAL_ENV",
    "ROCM_", "NVTOOLSEXT_", "MMDET_DATASETS", "LOGLEVEL", "PYTHONWARNINGS", "WORKDIR_ROOT", "SPM_PATH", "FOO",
    "RUN_SLOW", "PYTEST_", "NPROC", "FORK_LAUNCHED", "GE_PROFILING", "PARTITIONER_MEMORY_BUDGET_PARETO", "QUACK_",
    "FAKE_ALLOW_META", "LTC_", "TFDS_", "WDS_", "HFIDS_", "SLURM_",
)  # fmt: skip
"""Trackers, clusters, paths, tests, profilers, and data sets that DropBench does not read."""
OTHER_DEVICES = ("ASCEND_", "HCCL_", "NPU", "MUSA_", "PARROTS_", "HIP_", "ROCR_", "ZE_", "TPU_")


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_variable_that_a_library_reads_is_set_or_recorded(library: str) -> None:
    spec = find_spec(library)
    assert spec is not None
    assert spec.submodule_search_locations
    left_out, names = LIBRARIES[library], set[str]()
    for file in Path(next(iter(spec.submodule_search_locations))).rglob("*.py"):
        if not {*left_out}.intersection(file.parts):
            names.update(first or second for first, second in READ.findall(file.read_text("utf-8", "replace")))
    known = (*LAUNCHER, *RECIPE, *RECORDED, *NO_NUMBERS, *OTHER_DEVICES)
    assert names - {name for name in names if name.startswith(known)} == set()
