"""DETR beside stock mmdet's: parameters, outputs on images of different shapes, sites, weights."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from torch import Tensor, nn
from torchvision.models import resnet18

from adapters.detr import build_detr, detr_config, in_mmdet, load_detr_weights
from harness.binding import bind, sites, watch
from harness.errors import InputError
from harness.regularizers.spec import build_regularizer
from harness.settings import Settings
from harness.trial import TrialRequest
from tasks.object_detection import ObjectDetection

SMALL = {"depth": 18, "num_queries": 7, "encoder_layers": 2, "decoder_layers": 2, "embed_dim": 32, "num_heads": 4}
STOCK = 41_575_061
"""Parameters of mmdet's DETR with a ResNet-50 and 80 classes."""


def stock(seed: int = 0) -> nn.Module:
    """mmdet's DETR as its configuration has it, but for the download of a backbone."""
    config = deepcopy(detr_config().model)
    config.backbone.init_cfg = None
    torch.manual_seed(seed)
    with in_mmdet():
        model: nn.Module = MODELS.build(config)
        model.init_weights()  # type: ignore[operator]
    return model.eval()


def inputs(data: str = "coco-synthetic") -> tuple[Tensor, list[DetDataSample]]:
    """Two images of different shapes in one batch, so that padding matters."""
    settings = Settings.from_environment(device="cpu")
    request = TrialRequest(task="object-detection", data=data, model="detr", overrides={"image_size": 96})
    task = ObjectDetection(ObjectDetection.trial_for(request, settings), settings)
    task.setup()
    found = [task.batch("test", [index]) for index in range(task.size("test"))]
    upright = next(one for one in found if one["images"][0].shape[1] > one["images"][0].shape[2])
    lying = next(one for one in found if one["images"][0].shape[1] < one["images"][0].shape[2])
    return task._prepared({key: upright[key] + lying[key] for key in upright})


def outputs(model: nn.Module, given: tuple[Tensor, list[DetDataSample]]) -> list[Tensor]:
    """Of every decoder layer, classes and boxes."""
    with torch.no_grad():
        return list(model(given[0], given[1], mode="tensor"))


@pytest.mark.parametrize(("stages", "cell"), [(3, 16), (4, 32)])
@pytest.mark.parametrize("depth", [18, 50])
def test_a_backbone_may_end_with_its_third_stage(stages: int, cell: int, depth: int) -> None:
    """Its weights are then those of the first stages of the whole one, and cells half as wide."""
    whole = build_detr("detr", {**SMALL, "depth": depth}, classes=4)
    ours = build_detr("detr", {**SMALL, "depth": depth, "stages": stages}, classes=4)
    assert ours.state_dict().keys() <= whole.state_dict().keys()
    assert len(ours.backbone.res_layers) == stages  # type: ignore[arg-type,union-attr]
    with torch.no_grad():
        (cells,) = ours.extract_feat(torch.zeros(1, 3, 64, 96))  # type: ignore[operator]
    assert cells.shape == (1, SMALL["embed_dim"], 64 // cell, 96 // cell)
    narrow = build_detr("detr", {**SMALL, "depth": depth, "stages": stages, "channels": 16}, classes=4)
    (weight,) = [value for name, value in narrow.state_dict().items() if name == "neck.convs.0.conv.weight"]
    assert weight.shape[1] * 4 == ours.state_dict()["neck.convs.0.conv.weight"].shape[1]
    with torch.no_grad():
        assert narrow.extract_feat(torch.zeros(1, 3, 64, 96))[0].shape == cells.shape  # type: ignore[operator]


def test_the_parameters_are_those_of_stock_mmdet() -> None:
    ours, theirs = build_detr("detr", {}, classes=80), stock()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in theirs.state_dict().items()
    }
    trained = [{name for name, p in model.named_parameters() if p.requires_grad} for model in (ours, theirs)]
    assert trained[0] == trained[1]
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) == STOCK


@pytest.mark.parametrize("data", ["coco-synthetic", "coco"])
def test_evaluation_is_that_of_stock_mmdet(data: str) -> None:
    if data == "coco" and not (Path(os.environ.get("DROPBENCH_DATA", "data")) / "coco").is_dir():
        pytest.skip("no coco in DROPBENCH_DATA")
    theirs, ours = stock(), build_detr("detr", {}, classes=80).eval()
    ours.load_state_dict(theirs.state_dict())
    given = inputs(data)
    assert len({sample.img_shape for sample in given[1]}) == 2
    expected = outputs(theirs, given)
    bind(ours, build_regularizer("dropkey", ratio=0.3))
    assert expected[0].shape == (6, 2, 100, 81)
    for one, two in zip(expected, outputs(ours, given), strict=True):
        assert (one - two).abs().max() <= 1e-6
    # What is looked at goes through attend(), whose sums have another order: twelve layers of it in more digits.
    double = (given[0].double(), given[1])
    seen: list[str] = []
    with watch(ours.double(), lambda site, weights: seen.append(site.name)):
        watched = outputs(ours, double)
    assert len(set(seen)) == len(seen) == 18
    for one, two in zip(outputs(theirs.double(), double), watched, strict=True):
        assert (one - two).abs().max() <= 1e-12
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_encoder_decoder_and_cross_attention_are_sites() -> None:
    model = build_detr("detr", {}, classes=80)
    report = bind(model, build_regularizer("dropkey", ratio=0.3), schedule="decreasing")
    found = [(site.kind, site.layer, site.depth, site.heads) for site in report.bound]
    assert sorted(found) == sorted(
        (kind, layer, 6, 8) for kind in ("encoder-self", "decoder-self", "cross") for layer in range(6)
    )
    for kind in ("encoder-self", "decoder-self", "cross"):
        alone = bind(model, build_regularizer("dropkey", ratio=0.3), kinds=(kind,))
        assert {site.kind for site in alone.bound} == {kind}
        assert len(alone.bound) == 6


def test_training_drops_and_attention_has_no_dropout_of_its_own() -> None:
    given = inputs()
    model = build_detr("detr", {**SMALL, "frozen": False, "dropout": 0.0}, classes=4)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 0.0  # so that passes do not follow from one another

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        with in_mmdet():
            losses: dict[str, Any] = model.train()(given[0], given[1], mode="loss")
        return float(sum(value.detach() for name, value in losses.items() if "loss" in name))

    assert loss(1) == loss(2)
    bind(model, build_regularizer("dropkey", ratio=0.5))
    assert loss(1) != loss(2)
    assert loss(1) == loss(1)
    assert len(sites(model)) == 6


def test_weights_of_mmdet_and_backbones_of_torchvision_load(tmp_path: Path) -> None:
    given = build_detr("detr", SMALL, classes=4)
    torch.save({"meta": {"epoch": 150}, "state_dict": given.state_dict()}, tmp_path / "detr.pth")
    model = build_detr("detr", SMALL, classes=4)
    assert load_detr_weights(model, tmp_path / "detr.pth") == "weights of detr.pth"
    assert all(torch.equal(value, given.state_dict()[name]) for name, value in model.state_dict().items())
    other = build_detr("detr", SMALL, classes=9)
    told = load_detr_weights(other, tmp_path / "detr.pth")
    assert told == "weights of detr.pth; the classifier is new: 4 classes there, 9 here"
    backbone = resnet18()
    torch.save(backbone.state_dict(), tmp_path / "resnet18.pth")
    assert load_detr_weights(model, tmp_path / "resnet18.pth") == "backbone of resnet18.pth"
    assert torch.equal(model.state_dict()["backbone.layer1.0.conv1.weight"], backbone.layer1[0].conv1.weight)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        theirs = nn.Sequential(*list(backbone.eval().children())[:-2])(image)
        (ours,) = model.eval().backbone(image)  # type: ignore[operator]
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no checkpoint", "expected a checkpoint of tensors and numbers alone"),
        (
            {"state_dict": {"encoder.layers.0.norms.0.weight": torch.zeros(32)}},
            r"not those of this DETR: \d+ missing \(backbone",
        ),
        ({"state_dict": 3}, "expected tensors by the names of parameters"),
        (None, "no such file"),
    ],
    ids=["bytes", "part", "number", "nothing"],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: Any, told: str) -> None:
    file = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    with pytest.raises(InputError, match=told) as error:
        load_detr_weights(build_detr("detr", SMALL, classes=4), file)
    assert "\n" not in str(error.value)


def test_heads_divide_the_width() -> None:
    with pytest.raises(InputError, match="embed_dim=30: expected a multiple of 4 and of num_heads=4"):
        build_detr("detr", {**SMALL, "embed_dim": 30}, classes=4)
