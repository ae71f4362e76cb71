"""Test textual entailment: both texts of a pair in one pass, all splits tokenized in the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dropbench.harness.settings import Settings
from dropbench.tasks.text.textual_entailment import TextualEntailment
from dropbench.tasks.text.tokenizer import PADDING
from tests.tasks.making import task_of, trial_of


def make(folder: Path | None = None, **overrides: Any) -> TextualEntailment:
    data = "snli" if folder else "snli-synthetic"
    settings = Settings(device="cpu", threads=1, folders={data: folder} if folder else {})
    trial = trial_of("textual-entailment", data, "text-transformer", overrides, settings)
    return task_of(TextualEntailment, trial, settings)


@pytest.fixture(scope="module")
def task() -> TextualEntailment:
    return make()


def test_a_batch_is_pairs_of_padded_texts(task: TextualEntailment) -> None:
    tokens, labels = task.batch("dev", [4, 1, 7])
    assert tokens.shape[:2] == (3, 2)
    assert labels.tolist() == [int(task.labels["dev"][index]) for index in (4, 1, 7)]
    for row, index in enumerate((4, 1, 7)):
        for side in (0, 1):
            text = task.tokens["dev"][index][side].tolist()
            assert tokens[row, side].tolist() == text + [PADDING] * (tokens.shape[2] - len(text))
    assert tokens.shape[2] == max(task.lengths["dev"][index] for index in (4, 1, 7))


def test_features_of_a_pair_are_shaped_as_its_tokens() -> None:
    task = make(features="case,characters")
    (tokens, features), _ = task.batch("dev", [4, 1, 7])
    assert features["case"].shape == tokens.shape
    assert features["characters"].shape[:3] == tokens.shape
    assert torch.equal(features["case"] == PADDING, tokens == PADDING)
    model = task.build_model().eval()
    assert task.logits(model, (tokens, features)).shape == (3, len(task.classes))


def test_tokens_do_not_depend_on_the_tokenization_of_a_split(tmp_path: Path) -> None:
    rows = {"train": "Two dogs aren't running, are they?", "dev": "Two dogs aren ' t running , are they ?"}
    rows["test"] = rows["dev"]
    for split, text in rows.items():
        pairs = [{"gold_label": label, "sentence1": text, "sentence2": "Dogs."} for label in ("entailment", "neutral")]
        content = "".join(json.dumps(pair) + "\n" for pair in pairs)
        (tmp_path / f"snli_1.0_{split}.jsonl").write_text(content, encoding="utf-8")
    task = make(tmp_path, min_count=1)
    assert [text.tolist() for text in task.tokens["train"][0]] == [text.tolist() for text in task.tokens["test"][0]]


def test_the_features_of_a_pair_are_u_v_their_distance_and_their_product(task: TextualEntailment) -> None:
    torch.manual_seed(0)
    model: Any = task.build_model().eval()
    tokens, _ = task.batch("test", range(6))
    pooled = []
    for side in (0, 1):
        hidden, real = model.encoder(tokens[:, side])
        pooled.append(torch.stack([row[keep].amax(dim=0) for row, keep in zip(hidden, real, strict=True)]))
    u, v = pooled
    first, second = (layer for layer in model.classifier if isinstance(layer, nn.Linear))
    expected = second(torch.relu(first(torch.cat([u, v, (u - v).abs(), u * v], dim=1))))
    torch.testing.assert_close(model(tokens), expected)
    swapped = model(tokens.flip(1))
    assert (swapped - expected).abs().max() > 1e-3
