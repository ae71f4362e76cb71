"""Test every task on texts with the library's heads of several families of models, with random weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dropbench.tasks.text.base import TextTask
from tests.tasks.making import SHORT, TEXTS, task_of, trial_of
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest

pytestmark = pytest.mark.usefixtures("few")
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("Roberta", SIZES),
    "modernbert": ("ModernBert", {**SIZES, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}),
    # as the published checkpoints of version 3
    "deberta-v3": ("DebertaV2", {
        **SIZES, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0,
        "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
    }),
    "gpt2": ("GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3}),
    "llama": ("Llama", SIZES),
}  # fmt: skip
PAIRS = [
    pytest.param(family, task, marks=[pytest.mark.slow] * (task not in some))
    for family, some in zip(
        FAMILIES,
        [{"question-answering"}, {"multiple-choice"}, {"question-answering"}, {"multiple-choice"}, {"text-regression"}],
        strict=True,
    )
    for task in TEXTS
]


@pytest.fixture
def weights(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Return a function: family → the folder of a small model of it, with the tokenizer of a BERT."""

    def save(family: str) -> Path:
        name, options = FAMILIES[family]
        folder: Path = request.getfixturevalue("bert")
        shutil.copytree(folder, tmp_path / family, ignore=shutil.ignore_patterns("config.json", "model.safetensors"))
        size = len(transformers.AutoTokenizer.from_pretrained(folder))
        torch.manual_seed(1)
        config = getattr(transformers, f"{name}Config")(vocab_size=size, **options)
        getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path / family)
        return tmp_path / family

    return save


def make(task: str, folder: Path, max_length: int = 24) -> Any:
    short = {"max_length": max_length, "batch_size": 8, **SHORT.get(task, {})}
    return task_of(TextTask, trial_of(task, TEXTS[task], "transformers-encoder", short, weights=str(folder)))


@pytest.mark.parametrize(("family", "task"), PAIRS)
def test_a_family_trains_and_is_scored_on_a_task(weights: Any, family: str, task: str) -> None:
    own = make(task, weights(family))
    model = own.build_model()
    loss = own.loss(model.train(), own.batch("train", range(8)))
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert sum(gradient.abs().sum() for gradient in gradients) > 0
    assert all(gradient.isfinite().all() for gradient in gradients)
    with torch.no_grad():
        batches = [own.batch("test", indices) for indices in own.evaluation_batches("test", 8)]
        metrics = own.evaluate(model.eval(), "test", batches)
    assert own.selection_metric.name in metrics
    assert all(-100 <= value <= 100 for value in metrics.values())


def test_a_decoder_classifies_by_its_last_token(weights: Any) -> None:
    own = make("text-classification", weights("gpt2"), max_length=300)
    model: Any = own.build_model().eval()
    tokens, _ = own.batch("test", range(6))
    lengths = (tokens != own.tokenizer.padding).sum(dim=1)
    assert lengths.unique().numel() > 1
    hidden = model.model.transformer(input_ids=tokens).last_hidden_state
    expected = model.model.score(hidden[torch.arange(6), lengths - 1])
    torch.testing.assert_close(model(tokens), expected)


def test_a_decoder_scores_each_choice(weights: Any) -> None:
    own = make("multiple-choice", weights("gpt2"))
    model = own.build_model().eval()
    inputs, _ = own.batch("test", range(3))
    tokens = inputs[0] if isinstance(inputs, tuple) else inputs
    logits = own.logits(model, inputs)
    assert logits.shape == tokens.shape[:2] == (3, 4)
    assert (model.model.score.out_features, own.classes) == (1, ("ending0", "ending1", "ending2", "ending3"))
    torch.testing.assert_close(own.logits(model, own.batch("test", [2])[0])[0], logits[2])
