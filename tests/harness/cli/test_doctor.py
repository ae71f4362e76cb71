"""Test `dropbench doctor --model`: the check of a library's model with random input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, T5Config, ViTConfig

from dropbench.harness.cli.main import run
from tests.harness.checking.conftest import soon  # noqa: F401 - used by pytest

SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS: dict[str, tuple[Any, int]] = {
    "bert": (BertConfig(vocab_size=100, **SIZES), 2),
    "vit": (ViTConfig(image_size=32, patch_size=8, **SIZES), 2),
    "t5": (T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4), 6),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_with_a_configuration(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, number = CONFIGS[name]
    config.save_pretrained(tmp_path)
    assert run(["doctor", "--model", f"hf:{tmp_path}", "--regularizer", "drophead:ratio=0.2", "--json"]) == 0
    findings = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["sites"] == {"what": "sites", "state": "ok", "detail": f"{number} of {number} sites act"}
    assert findings["evaluation"]["state"] == "ok"


def test_weights_of_the_folder_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = BertModel(CONFIGS["bert"][0])
    torch.nn.init.constant_(model.embeddings.LayerNorm.weight, torch.nan)
    model.save_pretrained(tmp_path)
    capsys.readouterr()
    assert run(["doctor", "--model", f"hf:{tmp_path}"]) == 1
    assert "not finite for" in capsys.readouterr().out


def test_a_model_of_timm_whose_regularizer_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--model", "timm:test_vit", "--regularizer", "dropkey:ratio=0"]) == 1
    assert "0 of 6 sites act, 6 with ratio 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "hf:bert-base"], "hf:bert-base: expected a local folder with config.json; nothing is downloaded"),
        (["--model", "timm:vit_tiny_patch16_22"], "unknown timm model 'vit_tiny_patch16_22': did you mean vit_tiny"),
        (["--model", "torch:vit"], "unknown source of models 'torch': known: hf, timm"),
        (["--model", "bert"], "--model bert: expected timm:NAME or hf:FOLDER"),
        (["--model", "timm:resnet18"], "no supported attention in ResNet"),
        (["--regularizer", "dropkey"], "--regularizer: it is for a model"),
    ],
)
def test_a_model_that_there_is_not_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", *words]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert not output.out


def test_a_model_that_takes_other_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = BertConfig(vocab_size=100, max_position_embeddings=4, **SIZES)
    config.save_pretrained(tmp_path)
    assert run(["doctor", "--model", f"hf:{tmp_path}"]) == 2
    assert "it does not run with random input" in capsys.readouterr().err
