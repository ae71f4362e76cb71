"""Test weights by name: fetched once from a hub on this machine, then read from the cache without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from dropbench.adapters.hub import fetch
from dropbench.harness.errors import InputError
from dropbench.harness.variables import hub_offline
from dropbench.tasks.weights import require_fitting_weights, resolve_weights, weights_ref
from tests.adapters.hub.server import Hub, serving, used
from tests.damage import TouchesAFile
from tests.input_errors import one_line
from tests.tasks.making import CPU, trial_of
from tests.training import run

TINY: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
IMAGES = {"image_size": 16, "channels": 3, "steps": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a ViT as on the hub, with files that nobody reads here."""
    from transformers import ViTConfig, ViTModel

    path = tmp_path_factory.mktemp("vit")
    torch.manual_seed(1)
    ViTModel(ViTConfig(**TINY)).save_pretrained(path)
    return path


@pytest.fixture
def hub(tmp_path: Path, folder: Path) -> Iterator[Hub]:
    with serving(tmp_path / "hf") as hub:
        hub.folders["org/vit"] = shutil.copytree(folder, tmp_path / "served")
        for name in ("README.md", "tf_model.h5", "pytorch_model.bin"):
            (hub.folders["org/vit"] / name).write_text("not read")
        with used(hub):
            yield hub


def make(weights: str) -> Any:
    return trial_of("image-classification", "digits", "image-encoder", IMAGES, weights=weights)


def test_equal_files_are_one_trial_by_folder_and_by_name_and_a_moved_branch_is_another(hub: Hub, folder: Path) -> None:
    named, local = make("hf:org/vit"), make(str(folder))
    assert named.id == local.id
    assert named.weights.path == f"hf:org/vit@{hub.commit('org/vit')}"
    assert sorted(file.name for file in cast(Path, resolve_weights(named)).iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert make(f"hf:org/vit@{hub.commit('org/vit')}").id == named.id
    config = hub.folders["org/vit"] / "config.json"
    config.write_text(config.read_text("utf-8").replace('"hidden_dropout_prob": 0.0', '"hidden_dropout_prob": 0.1'))
    fetch.cache_clear()
    moved = make("hf:org/vit")
    assert moved.id != named.id
    assert resolve_weights(named) != resolve_weights(moved)  # the old commit is still what it was


def test_a_cache_that_cannot_be_written_is_no_missing_network(hub: Hub) -> None:
    hub.cache.mkdir(exist_ok=True)
    (hub.cache / "hub").write_text("a file")
    with pytest.raises(OSError, match=f"'{hub.cache}/hub") as error:
        make("hf:org/vit")
    assert not isinstance(error.value, InputError)


def test_a_trial_reads_the_cache_without_the_hub(hub: Hub, tmp_path: Path) -> None:
    trial = make("hf:org/vit")
    before = len(hub.requests)
    assert run(tmp_path / "runs", trial)["steps"] == 2
    fetch.cache_clear()
    with hub_offline():
        assert make("hf:org/vit").id == trial.id
    assert len(hub.requests) == before
    shutil.rmtree(hub.cache)
    with one_line("not in the cache, and fetched when trials are queued.*run `hf download org/vit --revision"):
        resolve_weights(trial)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:org/none", "the hub has no org/none, or it is private: set HF_TOKEN"),
        ("hf:org/vit@dev", "org/vit has no revision 'dev'"),
        ("hf:a b", "expected hf:ORGANISATION/NAME"),
        ("timm:vit_small_patch16_224.augreg", "unknown timm weights .* did you mean vit_small_patch16_224.augreg_in1k"),
        ("timm:vit_small_patch16_224.augreg_in21k", "the hub has no timm/vit_small_patch16_224.augreg_in21k"),
    ],
)
def test_a_name_without_weights_is_an_error_of_one_line(hub: Hub, name: str, message: str) -> None:
    with one_line(message):
        weights_ref(name)


def test_parts_of_weights_that_are_not_there_are_missed(hub: Hub) -> None:
    (hub.folders["org/vit"] / "model.safetensors").rename(hub.folders["org/vit"] / "model-00001-of-00002.safetensors")
    index = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    (hub.folders["org/vit"] / "model.safetensors.index.json").write_text(index)
    with one_line("not in the cache, and the hub has no model.safetensors"):
        weights_ref("hf:org/vit")


def test_code_of_a_repository_never_runs(hub: Hub) -> None:
    config = hub.folders["org/vit"] / "config.json"
    (hub.folders["org/vit"] / "own.py").write_text("raise SystemExit('it ran')")
    config.write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}')
    with one_line("need code of their own, which never runs"):
        make("hf:org/vit")
    with one_line("unknown option of model image-encoder 'trust_remote_code'"):
        trial_of("image-classification", "digits", "image-encoder", {"model.trust_remote_code": True})


def test_a_pickle_with_code_is_refused(hub: Hub) -> None:
    served = hub.folders["org/vit"]
    (served / "model.safetensors").unlink()
    torch.save({"classifier.bias": TouchesAFile(served / "touched")}, served / "pytorch_model.bin")
    trial = make("hf:org/vit")
    with one_line("expected a checkpoint with only tensors and numbers"):
        require_fitting_weights(trial, CPU)
    assert not (served / "touched").exists()


@pytest.mark.slow
def test_a_command_fetches_once_and_without_a_network_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    trial = {"task": "image-classification", "data": "digits", "model": "image-encoder", "weights": "hf:org/vit"}
    command = [sys.executable, "-m", "dropbench", "run"]
    command += [part for name, value in trial.items() for part in (f"--{name}", value)]
    command += [part for key, value in IMAGES.items() for part in ("--set", f"{key}={value}")]
    token = {"HF_TOKEN": "hf_secret", "DROPBENCH_RUNS": str(tmp_path / "runs")}

    def call(**environment: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, **hub.environment, **token, **environment}
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    first = call()
    assert first.returncode == 0, first.stderr
    assert call(HF_HUB_OFFLINE="1").returncode == 0
    absent = call(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "empty"))
    assert absent.returncode == 2
    assert absent.stderr.startswith("dropbench: weights hf:org/vit: not in the cache")
    assert absent.stderr.count("\n") == 1
    kept = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    assert not any(b"hf_secret" in file.read_bytes() for file in kept)
    assert "hf_secret" not in first.stdout + first.stderr
