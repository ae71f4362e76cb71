"""Learning rates by layer and of the head: those of timm on its models, and of a formula on others."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import transformers
from timm.optim._param_groups import param_groups_layer_decay
from torch import nn

from dropbench import InputError, regularize
from dropbench.adapters.text.pretrained import LibraryModel
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.optimization.layers import head_parameters, parameter_layers
from dropbench.harness.trials.optimization import build_optimizer, rate_shares, set_rate
from dropbench.harness.trials.recipe import Recipe

BERT = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 16,
}  # fmt: skip


def of_transformers(name: str = "Bert") -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**{**BERT, "pad_token_id": 0})
    return LibraryModel(getattr(transformers, f"{name}ForSequenceClassification")(config), 0)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "volo_d1_224"])
@pytest.mark.parametrize("regularizer", [None, "dropkey"])
def test_layers_are_those_of_timm(name: str, regularizer: str | None) -> None:
    model = timm.create_model(name)
    theirs = {
        id(parameter): group["lr_scale"]
        for group in param_groups_layer_decay(model, layer_decay=0.5)
        for parameter in group["params"]
    }
    if regularizer is not None:
        regularize(model, regularizer, quiet=True)
    shares = rate_shares(model, Recipe(epochs=1, layer_decay=0.5))
    assert {id(parameter): shares[path] for path, parameter in model.named_parameters()} == theirs


@pytest.mark.parametrize("name", ["Bert", "DebertaV2"])
@pytest.mark.parametrize("regularizer", [None, "dropkey"])
def test_the_rate_falls_by_layer_below_the_head(name: str, regularizer: str | None) -> None:
    model = of_transformers(name)
    if regularizer is not None:
        regularize(model, regularizer, quiet=True)
    recipe = Recipe(epochs=1, lr=0.1, layer_decay=0.5)
    optimizer = build_optimizer(model, recipe)
    set_rate(optimizer, 0.2)
    rates = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    for path, parameter in model.named_parameters():
        layer = 0 if "embeddings" in path else int(path.split(".layer.")[1][0]) + 1 if ".layer." in path else 4
        assert rates[id(parameter)] == pytest.approx(0.2 * 0.5 ** (4 - layer)), path


def test_the_head_has_a_rate_of_its_own() -> None:
    model = of_transformers()
    assert head_parameters(model) == {"model.classifier.weight", "model.classifier.bias"}
    shares = rate_shares(model, Recipe(epochs=1, lr=0.1, head_lr=0.4, layer_decay=0.5))
    assert shares["model.classifier.bias"] == 4.0
    assert shares["model.bert.pooler.dense.bias"] == 1.0
    assert shares["model.bert.encoder.layer.2.output.dense.bias"] == 0.5


SIZES: dict[str, dict[str, Any]] = {
    "vit-digits": {"image_size": (8, 8), "channels": 1, "classes": 3},
    "t2t-vit-digits": {"image_size": (8, 8), "channels": 1, "classes": 3},
    "text-transformer": {"vocabulary": 9, "classes": 3, "max_length": 8},
    "bert-tiny": {"vocabulary": 9, "classes": 3, "max_length": 8},
    "learned-dropout-lm": {"vocabulary": 9, "context": 8},
}


@pytest.mark.parametrize("name", SIZES)
def test_every_kind_of_model_with_one_stack_has_layers(name: str) -> None:
    model = MODELS.get(name)(name, {}, **SIZES[name])
    layers, head = parameter_layers(model), head_parameters(model)
    assert layers.keys() == {path for path, _ in model.named_parameters()}
    last = max(layers.values())
    assert {*layers.values()} == {*range(last + 1)}
    assert bool(head) == (name != "learned-dropout-lm")
    assert {layers[path] for path in head} <= {last}
    assert 0 in {layer for path, layer in layers.items() if "embed" in path or "tokens" in path}


def test_two_stacks_are_refused() -> None:
    model = nn.Transformer(8, 2, 2, 2, 8, batch_first=True)
    with pytest.raises(InputError, match=r"expected a model with one stack of layers, not 2 \(encoder\.layers, deco"):
        parameter_layers(model)
