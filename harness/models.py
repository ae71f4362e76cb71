"""Every model by name: where it is built, and what tasks it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.registry import Registry

if TYPE_CHECKING:
    from torch import nn

ModelBuilder = Callable[..., "nn.Module"]
"""(name, options, **what the task knows of its data) -> the model, with random weights."""

MODELS: Registry[ModelBuilder] = Registry("model")
"""The fact `tasks` names the tasks that a model serves, `sample` the data that `dropbench list` builds it for."""

ON_IMAGES = ("image-classification",)
DIGITS = {"image_size": (8, 8), "channels": 1, "classes": 10}
CIFAR = {"image_size": (32, 32), "channels": 3, "classes": 100}
IMAGENET = {"image_size": (224, 224), "channels": 3, "classes": 1000}
for _name, _sample, _help in (
    ("vit-digits", DIGITS, "ViT: patch 2, 64-d, 4 layers (timm)"),
    ("vit-cifar", CIFAR, "ViT: patch 4, 192-d, 6 layers (timm)"),
    ("vit-tiny", IMAGENET, "ViT-Ti/16 (timm)"),
    ("vit-small", IMAGENET, "ViT-S/16 (timm)"),
    ("vit-base", IMAGENET, "ViT-B/16 (timm)"),
    ("deit-tiny", IMAGENET, "DeiT-Ti/16 (timm)"),
    ("deit-small", IMAGENET, "DeiT-S/16 (timm)"),
    ("deit-base", IMAGENET, "DeiT-B/16 (timm)"),
):
    MODELS.add(_name, "adapters.timm_models:build_vit", help=_help, tasks=ON_IMAGES, sample=_sample, weights=True)
for _name, _sample, _help in (
    ("t2t-vit-digits", DIGITS, "T2T-ViT: 64-d, 4 layers, 4 × 4 tokens"),
    ("t2t-vit-cifar", CIFAR, "T2T-ViT: 192-d, 6 layers, 8 × 8 tokens"),
    ("t2t-vit-14", IMAGENET, "T2T-ViT_t-14: tokens by a transformer"),
    ("t2t-vit-19", IMAGENET, "T2T-ViT_t-19: tokens by a transformer"),
    ("t2t-vit-24", IMAGENET, "T2T-ViT_t-24: tokens by a transformer"),
    ("t2t-vit-14-performer", IMAGENET, "T2T-ViT-14: tokens by a performer"),
    ("t2t-vit-19-performer", IMAGENET, "T2T-ViT-19: tokens by a performer"),
    ("t2t-vit-24-performer", IMAGENET, "T2T-ViT-24: tokens by a performer"),
):
    MODELS.add(_name, "adapters.t2t_vit:build_t2t_vit", help=_help, tasks=ON_IMAGES, sample=_sample, weights=True)
for _name, _sample, _help in (
    ("volo-cifar", CIFAR, "VOLO: 192-d, 2 + 4 layers, 8 × 8 tokens (timm)"),
    ("volo-d1", IMAGENET, "VOLO-D1 (timm)"),
    ("volo-d2", IMAGENET, "VOLO-D2 (timm)"),
    ("volo-d3", IMAGENET, "VOLO-D3 (timm)"),
):
    MODELS.add(
        _name, "adapters.volo:build_volo", help=_help, tasks=ON_IMAGES, sample=_sample, weights=True, token_labels=True
    )
ON_TEXT = ("text-classification", "sequence-labelling", "textual-entailment")
MODELS.add(
    "text-transformer",
    "adapters.text_transformer:build_text_transformer",
    help="Transformer encoder on words (DropAttention 3.1)",
    tasks=ON_TEXT,
    sample={"vocabulary": 10_000, "classes": 6, "max_length": 256},
)
for _name in ("bert-tiny", "bert-base"):
    MODELS.add(
        _name,
        "adapters.transformers_text:build_bert",
        help=f"BERT-{_name.removeprefix('bert-').title()} on words, random weights (transformers)",
        tasks=ON_TEXT,
        sample={"vocabulary": 30_522, "classes": 6, "max_length": 256},
    )
MODELS.add(
    "transformers-encoder",
    "adapters.transformers_text:build_pretrained",
    help="a pre-trained encoder from a folder of yours (--weights, transformers)",
    tasks=ON_TEXT,
    weights=True,
    tokenizer="adapters.transformers_text:Subwords",
)
for _name, _help in (
    ("learned-dropout-lm", "decoder-only LM: 144-d, 9 heads, 26 layers, masks not counted (Learned Dropout)"),
    ("learned-dropout-lm-baseline", "decoder-only LM: 156-d, 12 heads, 26 layers (Learned Dropout's baseline)"),
):
    MODELS.add(
        _name,
        "adapters.decoder:build_decoder",
        help=_help,
        tasks=("language-modelling",),
        sample={"vocabulary": 50_257, "context": 200},
    )
MODELS.add(
    "learned-dropout-lm-moe",
    "adapters.mixture_of_experts:build_mixture",
    help="decoder-only LM with experts, 2 of 7 active: as many active parameters as Learned Dropout's (Mixtral)",
    tasks=("language-modelling",),
    sample={"vocabulary": 50_257, "context": 200},
)
MODELS.add(
    "detr",
    "adapters.detr:build_detr",
    help="DETR with a ResNet-50: 256-d, 6 + 6 layers, 100 queries (mmdet)",
    tasks=("object-detection",),
    sample={"classes": 80},
    weights=True,
)
MODELS.add(
    "metro",
    "adapters.metro:build_metro",
    help="METRO with an HRNet-W64: 1024-, 256- and 128-d, 4 layers each, 445 tokens",
    tasks=("mesh-recovery",),
    sample={"image_size": 224, "joints": 14, "vertices": (431, 1723, 6890)},
    weights=True,
)
MODELS.add(
    "qpic",
    "adapters.qpic:build_qpic",
    help="QPIC: DETR whose queries find a person, an object and verbs; ResNet-50, or 101 (mmdet)",
    tasks=("interaction-detection",),
    sample={"objects": 80, "verbs": 117},
    weights=True,
)
for _name, _help in (
    ("transformer-wmt-en-de", "encoder and decoder: 512-d, 6 + 6 layers (fairseq)"),
    ("transformer-wmt-en-de-big", "encoder and decoder: 1024-d, 6 + 6 layers (fairseq)"),
):
    MODELS.add(
        _name,
        "adapters.fairseq_models:build_translation_model",
        help=_help,
        tasks=("translation",),
        sample={"source": 32_768, "target": 32_768, "joined": True},
    )
