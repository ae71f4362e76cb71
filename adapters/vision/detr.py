"""DETR (Carion et al. 2020) from mmdet's configuration, and its checkpoints."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import mmdet
import torch
from mmdet.models.dense_heads import DETRHead
from mmdet.registry import MODELS
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from torch import Tensor, nn

from dropbench.adapters.vision.options import DetrOptions
from dropbench.adapters.weights import detector_checkpoint, load_state, read_state, use_own_classifier
from dropbench.harness.errors import InputError
from dropbench.harness.trials.optimization import BACKBONE, Share
from dropbench.harness.validation import model_options

CONFIG = Path(mmdet.__file__).parent / ".mim" / "configs" / "detr" / "detr_r50_8xb2-150e_coco.py"
EXPANSION = {18: 1, 34: 1, 50: 4, 101: 4}
"""Channel expansion of a stage of a ResNet, by its depth."""
ORIGINAL_NAMES = {
    r"^backbone\.0\.body\.": "backbone.",
    r"^transformer\.": "",
    r"^input_proj\.": "neck.convs.0.conv.",
    r"^query_embed\.": "query_embedding.",
    r"^decoder\.norm\.": "decoder.post_norm.",
    r"\.self_attn\.": ".self_attn.attn.",
    r"\.multihead_attn\.": ".cross_attn.attn.",
    r"\.linear1\.": ".ffn.layers.0.0.",
    r"\.linear2\.": ".ffn.layers.1.",
    **{rf"\.norm{number + 1}\.": f".norms.{number}." for number in range(3)},
    r"^class_embed\.": "bbox_head.fc_cls.",
    r"^bbox_embed\.layers\.0\.": "bbox_head.reg_ffn.layers.0.0.",
    r"^bbox_embed\.layers\.1\.": "bbox_head.reg_ffn.layers.1.",
    r"^bbox_embed\.layers\.2\.": "bbox_head.fc_reg.",
}
"""Patterns in the authors' names of parameters (facebookresearch/detr, models/detr.py and models/transformer.py), with
their replacements in mmdet's names."""
UNUSED_IDS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""Of COCO's category ids 0 to 90, those without a category; the authors' classifier has outputs for them, too."""


class WholeBatchHead(DETRHead):  # type: ignore[misc]
    """mmdet's head of DETR, whose losses are divided by counts of the whole batch of an optimizer step.

    The batch may be a part of it, with a `Share` in the metadata of its images, whose targets are the true boxes that
    queries can match. mmdet divides by the counts of the part, and some of them by means over processes.
    """

    def loss_by_feat_single(
        self, cls_scores: Tensor, bbox_preds: Tensor, batch_gt_instances: Any, batch_img_metas: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses of classes, boxes (L1) and boxes (GIoU) of one decoder layer."""
        targets = self.get_targets([*cls_scores], [*bbox_preds], batch_gt_instances, batch_img_metas)
        labels, label_weights, boxes, box_weights = (torch.cat(parts) for parts in targets[:4])
        share: Share = batch_img_metas[0].get("share") or Share(1.0, (targets[4],))
        queries, (positives,) = sum(targets[4:]) / share.weight, share.targets
        num_classes = max(positives + (queries - positives) * self.bg_cls_weight, 1) * share.weight
        num_boxes = max(positives, 1) * share.weight
        sides = bbox_preds.new_tensor([meta["img_shape"][1::-1] * 2 for meta in batch_img_metas])
        scale = sides.repeat_interleave(bbox_preds.shape[1], dim=0)
        predicted = bbox_preds.flatten(0, 1)
        corners, true_corners = (bbox_cxcywh_to_xyxy(part) * scale for part in (predicted, boxes))
        return (
            self.loss_cls(cls_scores.flatten(0, 1), labels, label_weights, avg_factor=num_classes),
            self.loss_bbox(predicted, boxes, box_weights, avg_factor=num_boxes),
            self.loss_iou(corners, true_corners, box_weights, avg_factor=num_boxes),
        )


@lru_cache
def detr_config() -> Config:
    """Return mmdet's configuration of DETR with a ResNet-50 on COCO: model, pipelines, optimizer."""
    return Config.fromfile(CONFIG)


@contextmanager
def in_mmdet() -> Iterator[None]:
    """Resolve names of configurations in mmdet's registries, and silence mmdet's logs and warnings."""
    if not MMLogger.check_instance_created("mmengine"):
        MMLogger.get_instance("mmengine", log_level="ERROR")
    with DefaultScope.overwrite_default_scope("mmdet"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(mmdet|mmcv|mmengine)\.")
        yield


def build_detr(name: str, options: Mapping[str, Any], *, classes: int) -> nn.Module:
    """Build mmdet's DETR with random weights; `classes` is the number of classes without "no object".

    `options` are fields of `DetrOptions`. The result is a detector of mmdet: ``model.loss(inputs, samples)``,
    ``model.predict(inputs, samples)``.
    """
    checked = model_options(DetrOptions, name, options)
    dim, heads = checked.embed_dim, checked.num_heads
    if dim % heads or dim % 4:
        raise InputError(f"model {name}: embed_dim={dim}: expected a multiple of 4 and of num_heads={heads}")
    config = deepcopy(detr_config().model)
    stages = checked.stages
    config.backbone.update(
        depth=checked.depth,
        init_cfg=None,
        base_channels=checked.channels,
        num_stages=stages,
        out_indices=(stages - 1,),
        strides=(1, 2, 2, 2)[:stages],
        dilations=(1,) * stages,
        frozen_stages=1 if checked.frozen else -1,
        norm_eval=checked.frozen,
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
                del layer["dropout"]  # mmdet's shorthand for the two dropouts below
                layer.update(
                    num_heads=heads, attn_drop=0.0, dropout_layer={"type": "Dropout", "drop_prob": checked.dropout}
                )
    with in_mmdet():
        model: nn.Module = MODELS.build(config)
        model.bbox_head.__class__ = WholeBatchHead  # mmdet weights "no object" in `DETRHead` itself alone
        if not next(model.parameters()).is_meta:  # mmengine computes means of the weights, which meta tensors lack
            model.init_weights()  # type: ignore[operator]
    return model


def load_detr_weights(model: nn.Module, path: Path) -> str:
    """Load a checkpoint into a model: a DETR as published by mmdet or its authors, or a ResNet of torchvision.

    Arguments, result and errors are those of `dropbench.adapters.vision.image_weights.load_image_weights`; the file may
    also have been written by mmengine.
    """
    return load_detector_state(model, read_detector(path), path)


def read_detector(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint by mmdet's names; errors are those of `adapters.weights.read_state`.

    The authors' classifier for COCO has 92 outputs: the category ids 0 to 90, and "no object". Those of ids that exist
    are kept, as in QPIC's convert_parameters.py.
    """
    state = read_state(path, detector_checkpoint())[0]
    if "transformer.decoder.norm.weight" not in state:
        return state
    used = [output for output in range(92) if output not in UNUSED_IDS]
    converted = {}
    for name, value in state.items():
        if "class_embed." in name and len(value) == 92:
            value = value[used]
        for pattern, replacement in ORIGINAL_NAMES.items():
            name = re.sub(pattern, replacement, name)
        converted[name] = value
    return converted


def load_detector_state(model: nn.Module, state: dict[str, Tensor], path: Path) -> str:
    """Load the tensors of a detector or of torchvision's ResNet; result and errors as in `load_detr_weights`."""
    backbone = "conv1.weight" in state
    if backbone:
        state = {f"{BACKBONE}{name}": value for name, value in state.items() if not name.startswith("fc.")}
    classifier = use_own_classifier(state, model.state_dict(), "bbox_head.fc_cls", background=1)
    load_state(model, state, path, BACKBONE if backbone else "")
    return "; ".join(filter(None, (f"{'backbone' if backbone else 'weights'} of {path.name}", classifier)))
