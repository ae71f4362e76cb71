"""Compare QPIC with golden figures of its authors' code: outputs, losses, matched queries (see docs/parity.md)."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.ops import box_convert

from dropbench.adapters.vision.qpic import (
    LOSS_WEIGHTS,
    PairHead,
    PairOutputs,
    Pairs,
    build_qpic,
    load_qpic_weights,
    match,
    pair_losses,
)
from tests.adapters.vision.authors_names import authors_names
from tests.golden.figures import draws, picked
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "qpic.json").read_text())
SMALL = {
    "depth": 18, "num_queries": 12, "encoder_layers": 2, "decoder_layers": 2, "embed_dim": 32, "num_heads": 4,
    "feedforward": 64,
}  # fmt: skip
SHAPES, PAIRS, ORIGINAL = ((96, 128), (128, 80)), (3, 2), ((960, 1280), (640, 400))
LOSSES = {
    "object": "loss_obj_ce", "verb": "loss_verb_ce", "subject_l1": "loss_sub_bbox", "object_l1": "loss_obj_bbox",
    "subject_giou": "loss_sub_giou", "object_giou": "loss_obj_giou",
}  # fmt: skip


def filled(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return random values that depend only on a tensor's name and shape."""
    random = draws(name)
    if len(shape) > 1:
        return torch.from_numpy(random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))
    if name.endswith("running_var"):
        return torch.from_numpy(0.5 + random.random_sample(shape))
    return torch.from_numpy(name.endswith("weight") + 0.1 * random.standard_normal(shape))


def inputs() -> tuple[Tensor, list[DetDataSample], list[Pairs]]:
    """Return two images of different shapes in one batch, and their true pairs."""
    images, samples, truths = torch.zeros(2, 3, 128, 128, dtype=torch.float64), [], []
    for number, (height, width) in enumerate(SHAPES):
        images[number, :, :height, :width] = torch.from_numpy(
            draws(f"image {number}").standard_normal((3, height, width))
        )
        meta = {"img_shape": (height, width), "ori_shape": ORIGINAL[number], "batch_input_shape": (128, 128)}
        samples.append(DetDataSample(metainfo=meta))
        random, count = draws(f"pairs {number}"), PAIRS[number]
        labels = torch.from_numpy(random.randint(0, 80, count))
        verbs = torch.from_numpy((random.random_sample((count, 117)) < 0.02).astype(float))
        boxes = [
            np.concatenate(
                [0.3 + 0.4 * random.random_sample((count, 2)), 0.1 + 0.4 * random.random_sample((count, 2))], 1
            )
            for _ in range(2)
        ]
        truths.append(Pairs(labels, verbs, *(torch.from_numpy(box) for box in boxes)))
    return images, samples, truths


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    qpic = build_qpic("qpic", SMALL, objects=80, verbs=117).double().eval()
    state = {name: value for name, value in qpic.state_dict().items() if not name.endswith("num_batches_tracked")}
    values = {name: filled(name, tuple(value.shape)) for name, value in authors_names(state).items()}
    file = tmp_path_factory.mktemp("weights") / "qpic.pth"
    torch.save({"model": values, "args": Namespace(dataset_file="hico")}, file)
    assert load_qpic_weights(qpic, file) == "weights of qpic.pth"
    return qpic


@pytest.fixture(scope="module")
def outputs(model: nn.Module) -> PairOutputs:
    images, samples, _ = inputs()
    with torch.no_grad():
        return PairOutputs(*model(images, samples, mode="tensor"))


def test_outputs_of_every_layer(outputs: PairOutputs) -> None:
    for layer, expected in enumerate(GOLDEN["model"]["outputs"]):
        for name, values in expected.items():
            assert picked(getattr(outputs, name)[layer], rounded=True) == pytest.approx(values, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", ["focal", "bce"])
def test_losses_of_every_layer(outputs: PairOutputs, kind: str) -> None:
    truths, last = inputs()[2], len(outputs.objects) - 1
    for layer, layer_outputs in enumerate(zip(*outputs, strict=True)):
        losses = pair_losses(PairOutputs(*layer_outputs), truths, kind)
        ending = "" if layer == last else f"_{layer}"
        for ours, name in LOSSES.items():
            golden = GOLDEN["model"]["bce" if (kind, ours) == ("bce", "verb") else "losses"]
            assert float(losses[ours]) == pytest.approx(golden[name + ending], rel=1e-6)


def test_the_matcher_chooses_the_same_queries(outputs: PairOutputs) -> None:
    for layer, layer_outputs in enumerate(zip(*outputs, strict=True)):
        chosen = [
            [rows.tolist(), columns.tolist()] for rows, columns in match(PairOutputs(*layer_outputs), inputs()[2])
        ]
        assert chosen == GOLDEN["model"]["matched"][layer]


def test_predictions_in_pixels(model: nn.Module) -> None:
    images, samples, _ = inputs()
    with torch.no_grad():
        results = model(images, samples, mode="predict")
    for result, expected in zip(results, GOLDEN["model"]["predicted"], strict=True):
        instances = result.pred_instances
        assert instances.labels.tolist() == expected["labels"]
        assert picked(torch.cat([instances.subjects, instances.objects]), rounded=True) == pytest.approx(
            expected["boxes"], rel=1e-6
        )
        assert picked(instances.scores, rounded=True) == pytest.approx(expected["scores"], rel=1e-6)


def test_the_total_loss_has_the_published_weights(model: nn.Module, outputs: PairOutputs) -> None:
    assert list(LOSS_WEIGHTS.values()) == [1, 1, 2.5, 2.5, 1, 1]
    images, samples, truths = inputs()
    for sample, truth, (height, width) in zip(samples, truths, SHAPES, strict=True):
        size = torch.tensor([width, height, width, height])
        boxes = [box_convert(part, "cxcywh", "xyxy") * size for part in truth[2:]]
        sample.gt_instances = InstanceData(labels=truth.labels, verbs=truth.verbs, subjects=boxes[0], objects=boxes[1])
    losses: dict[str, Any] = model(images, samples, mode="loss")
    assert len(losses) == 2 * 6
    golden = GOLDEN["model"]["losses"]
    for layer, ending in enumerate(("_0", "")):
        for ours, name in LOSSES.items():
            expected = LOSS_WEIGHTS[ours] * golden[name + ending]
            assert float(losses[f"d{layer}.loss_{ours}"].detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("depth", "parameters"), [(50, "resnet50"), (101, "resnet101")])
def test_the_number_of_parameters(depth: int, parameters: str) -> None:
    with torch.device("meta"):
        model = build_qpic("qpic", {"depth": depth}, objects=80, verbs=117)
    assert isinstance(model.bbox_head, PairHead)
    # In the authors' code, weights and biases of the backbone's norms are constants and not parameters.
    norms = ("bn1", "bn2", "bn3", "downsample.1")
    kept = sum(p.numel() for name, p in model.named_parameters() if name.rsplit(".", 1)[0].endswith(norms) is False)
    assert kept == GOLDEN["parameters"][parameters]
