"""DETR (Carion et al. 2020) from mmdet's own configuration, and weights for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import mmdet
import torch
from mmdet.registry import MODELS
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from adapters.compat.checkpoints import mmengine_checkpoint
from adapters.weights import give, read_state
from harness.errors import InputError
from harness.optimization import BACKBONE
from harness.validation import model_options

CONFIG = Path(mmdet.__file__).parent / ".mim" / "configs" / "detr" / "detr_r50_8xb2-150e_coco.py"
EXPANSION = {18: 1, 34: 1, 50: 4, 101: 4}
"""Channels that a stage of a ResNet gives over those it works with, by its depth."""


class DetrOptions(BaseModel):
    """Shape of the model; the defaults are those of mmdet's configuration.

    Dropout is what follows attention and the feed-forward network. That of the attention weights, 0.1 in the
    configuration, is a regularizer here and not part of the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    depth: Literal[18, 34, 50, 101] = Field(default=50, description="of the ResNet")
    stages: Literal[3, 4] = Field(
        default=4, description="of the ResNet that are there: after the third, a cell is 16 pixels wide, then 32"
    )
    channels: int = Field(default=64, ge=1, description="of the ResNet's first stage")
    frozen: bool = Field(default=True, description="whether the backbone's norms and first stage stay as they are")
    num_queries: int = Field(default=100, ge=1)
    encoder_layers: int = Field(default=6, ge=1)
    decoder_layers: int = Field(default=6, ge=1)
    embed_dim: int = Field(default=256, ge=2)
    num_heads: int = Field(default=8, ge=1)
    feedforward: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)


@lru_cache
def detr_config() -> Config:
    """mmdet's configuration of DETR with a ResNet-50 on COCO: model, pipelines, optimizer."""
    return Config.fromfile(CONFIG)


@contextmanager
def in_mmdet() -> Iterator[None]:
    """Names in configurations are mmdet's; what it tells of itself, and its warnings of its own code, are not shown."""
    if not MMLogger.check_instance_created("mmengine"):
        MMLogger.get_instance("mmengine", log_level="ERROR")
    with DefaultScope.overwrite_default_scope("mmdet"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(mmdet|mmcv|mmengine)\.")
        yield


def build_detr(name: str, options: Mapping[str, Any], *, classes: int) -> nn.Module:
    """mmdet's DETR with random weights.

    Args:
        name: as registered in MODELS.
        options: fields of `DetrOptions` that differ from the default ones.
        classes: how many there are, without "no object".

    Returns:
        a detector as mmdet's: ``model.loss(inputs, samples)``, ``model.predict(inputs, samples)``.

    Raises:
        InputError: an unknown or impossible option.
    """
    checked = model_options(DetrOptions, name, options)
    dim, heads = checked.embed_dim, checked.num_heads
    if dim % heads or dim % 4:
        raise InputError(f"model {name}: embed_dim={dim}: expected a multiple of 4 and of num_heads={heads}")
    config = deepcopy(detr_config().model)
    stages, trained = checked.stages, {} if checked.frozen else {"frozen_stages": -1, "norm_eval": False}
    config.backbone.update(
        depth=checked.depth,
        init_cfg=None,
        base_channels=checked.channels,
        num_stages=stages,
        out_indices=(stages - 1,),
        strides=(1, 2, 2, 2)[:stages],
        dilations=(1,) * stages,
        **trained,
    )
    config.backbone.norm_cfg.requires_grad = not checked.frozen
    last = checked.channels * EXPANSION[checked.depth] * 2 ** (stages - 1)
    config.neck.update(in_channels=[last], out_channels=dim)
    config.num_queries = checked.num_queries
    config.test_cfg.max_per_img = min(config.test_cfg.max_per_img, checked.num_queries)
    config.positional_encoding.num_feats = dim // 2
    config.bbox_head.update(num_classes=classes, embed_dims=dim)
    for part, layers in ((config.encoder, checked.encoder_layers), (config.decoder, checked.decoder_layers)):
        part.num_layers = layers
        for key, layer in part.layer_cfg.items():
            layer.embed_dims = dim
            if key == "ffn_cfg":
                layer.update(feedforward_channels=checked.feedforward, ffn_drop=checked.dropout)
            else:
                del layer["dropout"]  # stands for both of these
                layer.update(
                    num_heads=heads, attn_drop=0.0, dropout_layer={"type": "Dropout", "drop_prob": checked.dropout}
                )
    with in_mmdet():
        model: nn.Module = MODELS.build(config)
        if not next(model.parameters()).is_meta:  # whose means mmengine would look at
            model.init_weights()  # type: ignore[operator]
    return model


def load_detr_weights(model: nn.Module, path: Path) -> str:
    """Give a model the weights of a file: of a whole DETR as mmdet publishes it, or of a ResNet as torchvision does.

    Args:
        model: as `build_detr` makes it, not regularised.
        path: a checkpoint, as mmengine or `torch.save` writes it.

    Returns:
        what was done, in one line.

    Raises:
        InputError: there is no such file, it holds more than tensors and numbers, or they are not the model's.
    """
    return give_weights(model, read_mmdet_state(path), path)


def read_mmdet_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, as mmengine or `torch.save` writes it; raises InputError as `read_state` does."""
    return read_state(path, mmengine_checkpoint())[0]


def give_weights(model: nn.Module, state: Mapping[str, torch.Tensor], path: Path) -> str:
    """Give a model tensors of a file, which are all of its own or those of a backbone as torchvision names them.

    Returns:
        what was done, in one line.

    Raises:
        InputError: they are not the model's.
    """
    backbone = "conv1.weight" in state
    if backbone:
        state = {f"{BACKBONE}{name}": value for name, value in state.items() if not name.startswith("fc.")}
    own = model.state_dict()
    state, notes = dict(state), [f"{'backbone' if backbone else 'weights'} of {path.name}"]
    head = [name for name in own if name.startswith("bbox_head.fc_cls.") and name in state]
    if head and all(state[name].shape[1:] == own[name].shape[1:] for name in head):
        there, here = len(state[head[0]]) - 1, len(own[head[0]]) - 1
        if there != here:
            state.update({name: own[name] for name in head})
            notes.append(f"the classifier is new: {there} classes there, {here} here")
    give(model, state, path, BACKBONE if backbone else "")
    return "; ".join(notes)
