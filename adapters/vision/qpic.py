"""QPIC (Tamura et al. 2021): mmdet's DETR with queries for pairs of a person and an object, with verbs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import box_convert, generalized_box_iou, generalized_box_iou_loss

from dropbench.adapters.vision.detr import build_detr, load_detector_state, read_detector
from dropbench.adapters.vision.options import DetrOptions, QpicOptions
from dropbench.harness.trials.optimization import Share
from dropbench.harness.validation import model_options

NO_OBJECT_WEIGHT = 0.1
"""Weight of the class "no object" in the cross entropy."""
LOSS_WEIGHTS = {
    "object": 1.0, "verb": 1.0, "subject_l1": 2.5, "object_l1": 2.5, "subject_giou": 1.0, "object_giou": 1.0,
}  # fmt: skip
"""Weights of the losses and of the matching costs."""
EPS = 1e-4
"""Keeps means over no pairs finite, as in the authors' code."""


class PairOutputs(NamedTuple):
    """Outputs of a decoder layer for each query.

    Objects are logits of the object's class (B, Q, O + 1) with "no object" last, verbs are logits (B, Q, V), and boxes
    (B, Q, 4) are center and size as shares of the image.
    """

    objects: Tensor
    verbs: Tensor
    subject_boxes: Tensor
    object_boxes: Tensor


class Pairs(NamedTuple):
    """The P true pairs of an image.

    Labels are the classes of the objects (P,), verbs are 1 for each verb of the pair, else 0 (P, V), and boxes (P, 4)
    are as in `PairOutputs`.
    """

    labels: Tensor
    verbs: Tensor
    subject_boxes: Tensor
    object_boxes: Tensor


Matches = list[tuple[Tensor, Tensor]]
"""For each image, matched queries and the numbers of their true pairs."""


class PairHead(nn.Module):
    """Four heads on the states of each decoder layer with their losses, in place of the head of mmdet's DETR."""

    def __init__(self, dim: int, objects: int, verbs: int, verb_loss: str) -> None:
        super().__init__()
        self.object_class = nn.Linear(dim, objects + 1)
        self.verb_class = nn.Linear(dim, verbs)
        self.subject_box, self.object_box = (_box_mlp(dim) for _ in range(2))
        self.verb_loss = verb_loss

    def forward(self, hidden_states: Tensor) -> PairOutputs:
        """Return outputs for states (layers, B, Q, dim), with a leading dimension of layers."""
        boxes = [head(hidden_states).sigmoid() for head in (self.subject_box, self.object_box)]
        return PairOutputs(self.object_class(hidden_states), self.verb_class(hidden_states), *boxes)

    def loss(self, hidden_states: Tensor, batch_data_samples: Sequence[DetDataSample]) -> dict[str, Tensor]:
        """Return each weighted loss of every decoder layer; the metadata of an image may have a `Share`."""
        truths = [true_pairs(sample) for sample in batch_data_samples]
        share = batch_data_samples[0].metainfo.get("share")
        losses = {}
        for layer, outputs in enumerate(zip(*self(hidden_states), strict=True)):
            values = pair_losses(PairOutputs(*outputs), truths, self.verb_loss, share)
            losses.update({f"d{layer}.loss_{name}": LOSS_WEIGHTS[name] * value for name, value in values.items()})
        return losses

    def predict(
        self, hidden_states: Tensor, batch_data_samples: Sequence[DetDataSample], rescale: bool = True
    ) -> list[InstanceData]:
        """Return one row per query for each image: boxes in pixels, the best class, verb scores times its score."""
        outputs = PairOutputs(*(part[-1] for part in self(hidden_states)))
        scores, labels = outputs.objects.softmax(-1)[..., :-1].max(-1)
        shapes = (sample.ori_shape if rescale else sample.img_shape for sample in batch_data_samples)
        scales = [_box_scale(shape, scores) for shape in shapes]
        return [
            InstanceData(
                subjects=_corners(outputs.subject_boxes[image]) * scale,
                objects=_corners(outputs.object_boxes[image]) * scale,
                labels=labels[image],
                scores=outputs.verbs[image].sigmoid() * scores[image, :, None],
            )
            for image, scale in enumerate(scales)
        ]


def true_pairs(sample: DetDataSample) -> Pairs:
    """Return the pairs of a sample, whose `gt_instances` have subjects and objects with corners in pixels."""
    truth = sample.gt_instances
    scale = _box_scale(sample.img_shape, truth.subjects)
    boxes = [box_convert(corners / scale, "xyxy", "cxcywh") for corners in (truth.subjects, truth.objects)]
    return Pairs(truth.labels, truth.verbs, *boxes)


@torch.no_grad()
def match(outputs: PairOutputs, truths: Sequence[Pairs]) -> Matches:
    """Match queries with the true pairs by the minimum total cost (QPIC, Section 3.2)."""
    probability = outputs.objects.softmax(-1)
    matches = []
    for image, truth in enumerate(truths):
        verbs, target = outputs.verbs[image].sigmoid(), truth.verbs.T
        agreement = verbs @ target / (target.sum(0) + EPS)
        agreement = agreement + (1 - verbs) @ (1 - target) / ((1 - target).sum(0) + EPS)
        subjects = (outputs.subject_boxes[image], truth.subject_boxes)
        objects = (outputs.object_boxes[image], truth.object_boxes)
        l1 = torch.maximum(*(torch.cdist(*boxes, p=1) for boxes in (subjects, objects)))
        giou = torch.maximum(*(-generalized_box_iou(*map(_corners, boxes)) for boxes in (subjects, objects)))
        cost = (
            -LOSS_WEIGHTS["object"] * probability[image][:, truth.labels]
            - LOSS_WEIGHTS["verb"] * agreement / 2
            + LOSS_WEIGHTS["subject_l1"] * l1
            + LOSS_WEIGHTS["subject_giou"] * giou
        )
        # Outputs that are not finite also give a loss that is not finite, which the engine reports.
        rows, columns = linear_sum_assignment(cost.nan_to_num().cpu().numpy())
        matches.append((torch.as_tensor(rows).to(cost.device), torch.as_tensor(columns).to(cost.device)))
    return matches


def pair_losses(
    outputs: PairOutputs, truths: Sequence[Pairs], verb_loss: str, share: Share | None = None
) -> dict[str, Tensor]:
    """Return the unweighted losses of one decoder layer, by the names of `LOSS_WEIGHTS`.

    They are divided by numbers of pairs and verbs as in the authors' code, but by those of the whole batch if this is a
    part of it. The authors' processes divide most losses by their own numbers.
    """
    matches = match(outputs, truths)
    images = torch.cat([torch.full_like(rows, image) for image, (rows, _) in enumerate(matches)])
    queries = torch.cat([rows for rows, _ in matches])
    targets = [[part[columns] for part in truth] for truth, (_, columns) in zip(truths, matches, strict=True)]
    target = Pairs(*(torch.cat(parts) for parts in zip(*targets, strict=True)))
    classes = torch.full(outputs.objects.shape[:2], outputs.objects.shape[-1] - 1, device=outputs.objects.device)
    classes[images, queries] = target.labels
    verbs = torch.zeros_like(outputs.verbs)
    verbs[images, queries] = target.verbs.to(verbs)
    weight = torch.ones_like(outputs.objects[0, 0])
    weight[-1] = NO_OBJECT_WEIGHT
    whole = share or Share(1.0, (len(queries), float(target.verbs.sum())))
    num_pairs, num_verbs = whole.targets
    num_subjects, num_objects = max(num_pairs, 1) * whole.weight, (num_pairs + EPS) * whole.weight
    # The cross entropy is a mean weighted by class, over all queries of the batch.
    class_weights = [
        NO_OBJECT_WEIGHT * classes.numel() * share_of_batch + (1 - NO_OBJECT_WEIGHT) * pairs
        for share_of_batch, pairs in ((1.0, len(queries)), (1.0 / whole.weight, num_pairs))
    ]
    of_whole = class_weights[0] / (class_weights[1] * whole.weight)
    subjects, objects = outputs.subject_boxes[images, queries], outputs.object_boxes[images, queries]
    return {
        "object": functional.cross_entropy(outputs.objects.transpose(1, 2), classes, weight) * of_whole,
        "verb": _verb_loss(outputs.verbs, verbs, verb_loss, max(num_verbs, 1) * whole.weight),
        "subject_l1": (subjects - target.subject_boxes).abs().sum() / num_subjects,
        "object_l1": (objects - target.object_boxes).abs().sum() / num_objects,
        "subject_giou": _giou_loss(subjects, target.subject_boxes) / num_subjects,
        "object_giou": _giou_loss(objects, target.object_boxes) / num_objects,
    }


def _verb_loss(logits: Tensor, verbs: Tensor, kind: str, num_verbs: float) -> Tensor:
    """Return CornerNet's focal loss divided by the number of verbs, or the mean binary cross entropy."""
    if kind == "bce":
        return functional.binary_cross_entropy_with_logits(logits, verbs)
    # The logarithm of the sigmoid stays finite for probabilities that round to 0 or 1.
    positive = functional.logsigmoid(logits) * (-logits).sigmoid() ** 2 * verbs
    negative = functional.logsigmoid(-logits) * logits.sigmoid() ** 2 * (1 - verbs)
    return -(positive.sum() + negative.sum()) / num_verbs


def _giou_loss(predicted: Tensor, true: Tensor) -> Tensor:
    return cast(Tensor, generalized_box_iou_loss(_corners(predicted), _corners(true), reduction="sum", eps=0.0))


def _corners(boxes: Tensor) -> Tensor:
    return cast(Tensor, box_convert(boxes, "cxcywh", "xyxy"))


def _box_scale(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return (width, height, width, height) for a shape (height, width)."""
    return like.new_tensor([shape[1], shape[0], shape[1], shape[0]])


def _box_mlp(dim: int) -> nn.Sequential:
    hidden = (part for _ in range(2) for part in (nn.Linear(dim, dim), nn.ReLU(inplace=True)))
    return nn.Sequential(*hidden, nn.Linear(dim, 4))


def build_qpic(name: str, options: Mapping[str, Any], *, objects: int, verbs: int) -> nn.Module:
    """Build a QPIC with random weights for the given numbers of object classes, without "no object", and of verbs.

    `options` are fields of `QpicOptions`; result and errors are those of `dropbench.adapters.vision.detr.build_detr`.
    """
    checked = model_options(QpicOptions, name, options)
    model = build_detr(name, {key: getattr(checked, key) for key in DetrOptions.model_fields}, classes=objects)
    model.bbox_head = head = PairHead(checked.embed_dim, objects, verbs, checked.verb_loss)
    if checked.verb_prior is not None:
        nn.init.constant_(head.verb_class.bias, math.log(checked.verb_prior / (1 - checked.verb_prior)))
    return model


FROM_DETR = {
    "fc_cls": ("object_class",),
    "reg_ffn.layers.0.0": ("subject_box.0", "object_box.0"),
    "reg_ffn.layers.1": ("subject_box.2", "object_box.2"),
    "fc_reg": ("subject_box.4", "object_box.4"),
}
"""Layers of a DETR's head that initialize QPIC's heads, as in the authors' training."""
ORIGINAL_HEADS = {
    "obj_class_embed": "object_class",
    "verb_class_embed": "verb_class",
    **{f"{theirs}_bbox_embed.layers.{layer}": f"{ours}_box.{2 * layer}"
       for theirs, ours in (("sub", "subject"), ("obj", "object")) for layer in range(3)},
}  # fmt: skip
"""QPIC's heads by the authors' names (hitachi-rd-cv/qpic, models/hoi.py)."""


def load_qpic_weights(model: nn.Module, path: Path) -> str:
    """Load a QPIC by our or its authors' names, or what `adapters.vision.detr.load_detr_weights` accepts, into a model.

    Arguments, result and errors are those of `load_detr_weights`; a DETR also initializes the heads of QPIC.
    """
    state, head = read_detector(path), "bbox_head."
    if f"{head}fc_cls.weight" not in state:
        for source, target in ORIGINAL_HEADS.items():
            for kind in ("weight", "bias"):
                if f"{source}.{kind}" in state:
                    state[f"{head}{target}.{kind}"] = state.pop(f"{source}.{kind}")
        return load_detector_state(model, state, path)
    converted = {name: value for name, value in state.items() if not name.startswith(head)}
    for source, targets in FROM_DETR.items():
        for kind in ("weight", "bias"):
            if f"{head}{source}.{kind}" in state:
                converted.update({f"{head}{target}.{kind}": state[f"{head}{source}.{kind}"] for target in targets})
    verb_head = {name: value for name, value in model.state_dict().items() if name.startswith(f"{head}verb_class.")}
    return f"{load_detector_state(model, {**converted, **verb_head}, path)}, from a DETR; the verb head is new"
