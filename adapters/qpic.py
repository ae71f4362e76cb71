"""QPIC (Tamura et al. 2021): mmdet's DETR whose queries find a person, an object, and what one does with the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from mmdet.structures import DetDataSample
from mmdet.utils import reduce_mean
from mmengine.structures import InstanceData
from pydantic import Field
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import box_convert, generalized_box_iou, generalized_box_iou_loss

from adapters.detr import DetrOptions, build_detr, give_weights, read_mmdet_state
from harness.validation import model_options

NO_OBJECT = 0.1
"""Weight of "no object" in the loss of classes."""
WEIGHTS = {"object": 1.0, "verb": 1.0, "subject_l1": 2.5, "object_l1": 2.5, "subject_giou": 1.0, "object_giou": 1.0}
"""Of the losses; the matcher has the same."""
_LITTLE = 1e-4
"""Keeps the original's means of nothing finite."""


class QpicOptions(DetrOptions):
    """Shape of the model, as DETR's, and its loss."""

    verb_loss: Literal["focal", "bce"] = Field(default="focal", description="of the verbs")
    verb_prior: float | None = Field(
        default=None, gt=0, lt=1, description="initial probability of every verb; default: near a half, as published"
    )


class Found(NamedTuple):
    """What a decoder layer says of each query; boxes are centre and size as shares of the image.

    Attributes:
        objects: (B, Q, O + 1): logits of the object's class, "no object" last.
        verbs: (B, Q, V): logits.
        subject_boxes: (B, Q, 4).
        object_boxes: (B, Q, 4).
    """

    objects: Tensor
    verbs: Tensor
    subject_boxes: Tensor
    object_boxes: Tensor


class Pairs(NamedTuple):
    """The true pairs of an image, P of them; boxes as in `Found`.

    Attributes:
        labels: (P,): class of the object.
        verbs: (P, V): 1 for each verb that holds, else 0.
        subject_boxes: (P, 4).
        object_boxes: (P, 4).
    """

    labels: Tensor
    verbs: Tensor
    subject_boxes: Tensor
    object_boxes: Tensor


Matched = list[tuple[Tensor, Tensor]]
"""Of each image, queries and the pairs that they stand for."""


class PairHead(nn.Module):
    """Four heads on the states of each decoder layer, with their losses, where mmdet's DETR has its own."""

    def __init__(self, dim: int, objects: int, verbs: int, verb_loss: str) -> None:
        super().__init__()
        self.object_class = nn.Linear(dim, objects + 1)
        self.verb_class = nn.Linear(dim, verbs)
        self.subject_box, self.object_box = (_three_layers(dim, 4) for _ in range(2))
        self.verb_loss = verb_loss

    def forward(self, hidden_states: Tensor) -> Found:
        """Of states (layers, B, Q, dim), what `Found` has, with the layers before the batch."""
        boxes = [head(hidden_states).sigmoid() for head in (self.subject_box, self.object_box)]
        return Found(self.object_class(hidden_states), self.verb_class(hidden_states), *boxes)

    def loss(self, hidden_states: Tensor, batch_data_samples: Sequence[DetDataSample]) -> dict[str, Tensor]:
        """Of every decoder layer each loss, with its weight."""
        truths = [true_pairs(sample) for sample in batch_data_samples]
        found = self(hidden_states)
        losses = {}
        for layer, one in enumerate(zip(*found, strict=True)):
            values = pair_losses(Found(*one), truths, self.verb_loss)
            losses.update({f"d{layer}.loss_{name}": WEIGHTS[name] * value for name, value in values.items()})
        return losses

    def predict(
        self, hidden_states: Tensor, batch_data_samples: Sequence[DetDataSample], rescale: bool = True
    ) -> list[InstanceData]:
        """Of each image, a row a query: boxes in pixels, the likeliest object, scores of verbs times the object's."""
        found = Found(*(part[-1] for part in self(hidden_states)))
        scores, labels = found.objects.softmax(-1)[..., :-1].max(-1)
        made = []
        for place, sample in enumerate(batch_data_samples):
            size = _size(sample.ori_shape if rescale else sample.img_shape, scores)
            made.append(
                InstanceData(
                    subjects=_corners(found.subject_boxes[place]) * size,
                    objects=_corners(found.object_boxes[place]) * size,
                    labels=labels[place],
                    scores=found.verbs[place].sigmoid() * scores[place, :, None],
                )
            )
        return made


def true_pairs(sample: DetDataSample) -> Pairs:
    """Of a sample whose `gt_instances` have `labels`, `verbs`, and `subjects` and `objects` with corners in pixels."""
    truth = sample.gt_instances
    size = _size(sample.img_shape, truth.subjects)
    boxes = [box_convert(corners / size, "xyxy", "cxcywh") for corners in (truth.subjects, truth.objects)]
    return Pairs(truth.labels, truth.verbs, *boxes)


@torch.no_grad()
def match(found: Found, truths: Sequence[Pairs]) -> Matched:
    """The queries that stand for the true pairs, by the least sum of costs (QPIC, Section 3.2)."""
    probability = found.objects.softmax(-1)
    matched = []
    for place, truth in enumerate(truths):
        verbs, of_verbs = found.verbs[place].sigmoid(), truth.verbs.T
        right = verbs @ of_verbs / (of_verbs.sum(0) + _LITTLE)
        right = right + (1 - verbs) @ (1 - of_verbs) / ((1 - of_verbs).sum(0) + _LITTLE)
        pairs = ((found.subject_boxes[place], truth.subject_boxes), (found.object_boxes[place], truth.object_boxes))
        distance = torch.stack([torch.cdist(one, other, p=1) for one, other in pairs]).amax(0)
        apart = torch.stack([-generalized_box_iou(_corners(one), _corners(other)) for one, other in pairs]).amax(0)
        cost = (
            -WEIGHTS["object"] * probability[place][:, truth.labels]
            - WEIGHTS["verb"] * right / 2
            + WEIGHTS["subject_l1"] * distance
            + WEIGHTS["subject_giou"] * apart
        )
        # What is not finite has a loss that is not finite either, which the engine tells of.
        rows, columns = linear_sum_assignment(cost.nan_to_num().cpu().numpy())
        matched.append((torch.as_tensor(rows).to(cost.device), torch.as_tensor(columns).to(cost.device)))
    return matched


def pair_losses(found: Found, truths: Sequence[Pairs], verb_loss: str) -> dict[str, Tensor]:
    """The losses of one decoder layer by the names of `WEIGHTS`, without their weights."""
    matched = match(found, truths)
    images = torch.cat([torch.full_like(rows, place) for place, (rows, _) in enumerate(matched)])
    queries = torch.cat([rows for rows, _ in matched])
    taken = [[part[columns] for part in truth] for truth, (_, columns) in zip(truths, matched, strict=True)]
    truth = Pairs(*(torch.cat(parts) for parts in zip(*taken, strict=True)))
    classes = torch.full(found.objects.shape[:2], found.objects.shape[-1] - 1, device=found.objects.device)
    classes[images, queries] = truth.labels
    verbs = torch.zeros_like(found.verbs)
    verbs[images, queries] = truth.verbs.to(verbs)
    weight = torch.ones_like(found.objects[0, 0])
    weight[-1] = NO_OBJECT
    total = reduce_mean(found.objects.new_tensor([sum(len(one.labels) for one in truths)])).clamp(min=1)
    there = len(queries) + _LITTLE
    subjects, objects = found.subject_boxes[images, queries], found.object_boxes[images, queries]
    return {
        "object": functional.cross_entropy(found.objects.transpose(1, 2), classes, weight),
        "verb": _verb_loss(found.verbs, verbs, verb_loss),
        "subject_l1": (subjects - truth.subject_boxes).abs().sum() / total[0],
        "object_l1": (objects - truth.object_boxes).abs().sum() / there,
        "subject_giou": _giou_loss(subjects, truth.subject_boxes) / total[0],
        "object_giou": _giou_loss(objects, truth.object_boxes) / there,
    }


def _verb_loss(logits: Tensor, verbs: Tensor, kind: str) -> Tensor:
    """CornerNet's focal loss over the number of positives, or the mean of binary cross-entropy."""
    if kind == "bce":
        return functional.binary_cross_entropy_with_logits(logits, verbs)
    # In logarithms of sigmoids, which stay finite where the probability is 0 or 1.
    held = functional.logsigmoid(logits) * (-logits).sigmoid() ** 2 * verbs
    others = functional.logsigmoid(-logits) * logits.sigmoid() ** 2 * (1 - verbs)
    return -(held.sum() + others.sum()) / verbs.sum().clamp(min=1)


def _giou_loss(ones: Tensor, others: Tensor) -> Tensor:
    loss: Tensor = generalized_box_iou_loss(_corners(ones), _corners(others), reduction="sum", eps=0.0)
    return loss


def _corners(boxes: Tensor) -> Tensor:
    corners: Tensor = box_convert(boxes, "cxcywh", "xyxy")
    return corners


def _size(shape: Sequence[int], like: Tensor) -> Tensor:
    """Width and height twice, from (height, width)."""
    return like.new_tensor([shape[1], shape[0], shape[1], shape[0]])


def _three_layers(dim: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, outputs)
    )


def build_qpic(name: str, options: Mapping[str, Any], *, objects: int, verbs: int) -> nn.Module:
    """QPIC with random weights.

    Args:
        name: as registered in MODELS.
        options: fields of `QpicOptions` that differ from the default ones.
        objects: number of classes of objects, without "no object".
        verbs: how many there are.

    Returns:
        a detector as mmdet's: ``model.loss(inputs, samples)``, ``model.predict(inputs, samples)``.

    Raises:
        InputError: an unknown or impossible option.
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
"""What the heads begin with where the weights are a DETR's, as QPIC's authors begin."""


def load_qpic_weights(model: nn.Module, path: Path) -> str:
    """Give a model the weights of a file: of a whole QPIC, of a DETR as mmdet publishes it, or of torchvision's ResNet.

    Args:
        model: as `build_qpic` makes it, not regularised.
        path: a checkpoint, as mmengine or `torch.save` writes it.

    Returns:
        what was done, in one line.

    Raises:
        InputError: there is no such file, it holds more than tensors and numbers, or they are not the model's.
    """
    state, head = read_mmdet_state(path), "bbox_head."
    if f"{head}fc_cls.weight" not in state:
        return give_weights(model, state, path)
    given = {name: value for name, value in state.items() if not name.startswith(head)}
    for source, targets in FROM_DETR.items():
        for kind in ("weight", "bias"):
            if f"{head}{source}.{kind}" in state:
                given.update({f"{head}{target}.{kind}": state[f"{head}{source}.{kind}"] for target in targets})
    given.update({name: value for name, value in model.state_dict().items() if name.startswith(f"{head}verb_class.")})
    return f"{give_weights(model, given, path)}, a DETR's; the verbs are new"
