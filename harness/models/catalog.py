"""The registry of models: their builders and the tasks that they serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.registry import Registry

if TYPE_CHECKING:
    from torch import nn

ModelBuilder = Callable[..., "nn.Module"]
"""(name, options, **properties of the task's data) -> the model, with random weights."""

MODELS: Registry[ModelBuilder] = Registry("model")
"""Fact `tasks`: the tasks that a model serves; `parameters`: its size for data with the properties `sample`."""

ON_IMAGES = ("image-classification",)
DIGITS = {"image_size": (8, 8), "channels": 1, "classes": 10}
CIFAR = {"image_size": (32, 32), "channels": 3, "classes": 100}
IMAGENET = {"image_size": (224, 224), "channels": 3, "classes": 1000}
_facts: dict[str, Any]
for _builder, _facts, _models in (
    (
        "adapters.libraries.timm_models:build_vit",
        {},
        (
            ("vit-digits", DIGITS, 136_138, "ViT: patch 2, 64-d, 4 layers (timm)"),
            ("vit-cifar", CIFAR, 1_823_908, "ViT: patch 4, 192-d, 6 layers (timm)"),
            ("vit-tiny", IMAGENET, 5_717_416, "ViT-Ti/16 (timm)"),
            ("vit-small", IMAGENET, 22_050_664, "ViT-S/16 (timm)"),
            ("vit-base", IMAGENET, 86_567_656, "ViT-B/16 (timm)"),
            ("deit-tiny", IMAGENET, 5_717_416, "DeiT-Ti/16 (timm)"),
            ("deit-small", IMAGENET, 22_050_664, "DeiT-S/16 (timm)"),
            ("deit-base", IMAGENET, 86_567_656, "DeiT-B/16 (timm)"),
        ),
    ),
    (
        "adapters.vision.t2t_vit:build_t2t_vit",
        {},
        (
            ("t2t-vit-digits", DIGITS, 153_676, "T2T-ViT: 64-d, 4 layers, 4 × 4 tokens"),
            ("t2t-vit-cifar", CIFAR, 1_903_866, "T2T-ViT: 192-d, 6 layers, 8 × 8 tokens"),
            ("t2t-vit-14", IMAGENET, 21_541_070, "T2T-ViT_t-14: tokens by a transformer"),
            ("t2t-vit-19", IMAGENET, 39_172_942, "T2T-ViT_t-19: tokens by a transformer"),
            ("t2t-vit-24", IMAGENET, 64_101_454, "T2T-ViT_t-24: tokens by a transformer"),
            ("t2t-vit-14-performer", IMAGENET, 21_545_550, "T2T-ViT-14: tokens by a performer"),
            ("t2t-vit-19-performer", IMAGENET, 39_177_422, "T2T-ViT-19: tokens by a performer"),
            ("t2t-vit-24-performer", IMAGENET, 64_105_934, "T2T-ViT-24: tokens by a performer"),
        ),
    ),
    (
        "adapters.vision.volo:build_volo",
        {"token_labels": True},
        (
            ("volo-cifar", CIFAR, 2_076_638, "VOLO: 192-d, 2 + 4 layers, 8 × 8 tokens (timm)"),
            ("volo-d1", IMAGENET, 26_632_040, "VOLO-D1 (timm)"),
            ("volo-d2", IMAGENET, 58_678_336, "VOLO-D2 (timm)"),
            ("volo-d3", IMAGENET, 86_325_072, "VOLO-D3 (timm)"),
        ),
    ),
):
    for _name, _sample, _count, _help in _models:
        MODELS.add(
            _name, _builder, help=_help, tasks=ON_IMAGES, sample=_sample, parameters=_count, weights=True, **_facts
        )
ON_TEXT = ("text-classification", "sequence-labelling", "textual-entailment")
MODELS.add(
    "text-transformer",
    "adapters.text.text_transformer:build_text_transformer",
    help="Transformer encoder on words (DropAttention 3.1)",
    tasks=ON_TEXT,
    sample={"vocabulary": 10_000, "classes": 6, "max_length": 256},
    parameters=1_545_990,
)
for _name, _count in (("bert-tiny", 4_337_286), ("bert-base", 108_698_886)):
    MODELS.add(
        _name,
        "adapters.text.transformers_text:build_bert",
        help=f"BERT-{_name.removeprefix('bert-').title()} on words, random weights (transformers)",
        tasks=ON_TEXT,
        sample={"vocabulary": 30_522, "classes": 6, "max_length": 256},
        parameters=_count,
    )
MODELS.add(
    "transformers-encoder",
    "adapters.text.transformers_text:build_pretrained",
    help="a pre-trained encoder from a local folder (--weights, transformers)",
    tasks=ON_TEXT,
    weights=True,
    tokenizer="adapters.text.transformers_text:Subwords",
)
for _name, _count, _help in (
    (
        "learned-dropout-lm",
        13_743_072,
        "decoder-only LM: 144-d, 9 heads, 26 layers, masks not counted (Learned Dropout)",
    ),
    (
        "learned-dropout-lm-baseline",
        15_472_392,
        "decoder-only LM: 156-d, 12 heads, 26 layers (Learned Dropout's baseline)",
    ),
):
    MODELS.add(
        _name,
        "adapters.text.decoder:build_decoder",
        help=_help,
        tasks=("language-modelling",),
        sample={"vocabulary": 50_257, "context": 200},
        parameters=_count,
    )
MODELS.add(
    "learned-dropout-lm-moe",
    "adapters.text.mixture_of_experts:build_mixture",
    help="decoder-only LM with experts, 2 of 7 active: as many active parameters as Learned Dropout's (Mixtral)",
    tasks=("language-modelling",),
    sample={"vocabulary": 50_257, "context": 200},
    parameters=30_105_504,
)
MODELS.add(
    "detr",
    "adapters.vision.detr:build_detr",
    help="DETR with a ResNet-50: 256-d, 6 + 6 layers, 100 queries (mmdet)",
    tasks=("object-detection",),
    sample={"classes": 80},
    parameters=41_575_061,
    weights=True,
)
MODELS.add(
    "metro",
    "adapters.vision.metro:build_metro",
    help="METRO with an HRNet-W64: 1024-, 256- and 128-d, 4 layers each, 445 tokens",
    tasks=("mesh-recovery",),
    sample={"image_size": 224, "joints": 14, "vertices": (431, 1723, 6890)},
    parameters=196_187_885,
    weights=True,
)
MODELS.add(
    "qpic",
    "adapters.vision.qpic:build_qpic",
    help="QPIC: DETR whose queries find a person, an object and verbs; ResNet-50, or 101 (mmdet)",
    tasks=("interaction-detection",),
    sample={"objects": 80, "verbs": 117},
    parameters=41_737_742,
    weights=True,
)
for _name, _count, _help in (
    ("transformer-wmt-en-de", 60_915_712, "encoder and decoder: 512-d, 6 + 6 layers (fairseq)"),
    ("transformer-wmt-en-de-big", 209_911_808, "encoder and decoder: 1024-d, 6 + 6 layers (fairseq)"),
):
    MODELS.add(
        _name,
        "adapters.libraries.fairseq_models:build_translation_model",
        help=_help,
        tasks=("translation",),
        sample={"source": 32_768, "target": 32_768, "joined": True},
        parameters=_count,
    )
