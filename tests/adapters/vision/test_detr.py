"""Compare DETR with stock mmdet: parameters, outputs on images of different shapes, sites, checkpoints."""

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

from dropbench.adapters.vision.detr import WholeBatchHead, build_detr, detr_config, in_mmdet, load_detr_weights
from dropbench.harness.models.regularize import bind, find_patches
from dropbench.harness.models.sites import sites, watch
from dropbench.harness.regularizers.spec import build_regularizer
from dropbench.harness.settings import Settings
from dropbench.tasks.data.detection.hico import OBJECTS
from dropbench.tasks.detection.object_detection import ObjectDetection
from tests.adapters.vision.authors_names import authors_names
from tests.input_errors import one_line
from tests.tasks.making import task_of, trial_of

SMALL = {"depth": 18, "num_queries": 7, "encoder_layers": 2, "decoder_layers": 2, "embed_dim": 32, "num_heads": 4}
STOCK = 41_575_061
"""Parameters of mmdet's DETR with a ResNet-50 and 80 classes."""


def stock(seed: int = 0) -> nn.Module:
    """Return mmdet's DETR from its configuration, without downloading a backbone."""
    config = deepcopy(detr_config().model)
    config.backbone.init_cfg = None
    torch.manual_seed(seed)
    with in_mmdet():
        model: nn.Module = MODELS.build(config)
        model.init_weights()  # type: ignore[operator]
    return model.eval()


def inputs(data: str = "coco-synthetic") -> tuple[Tensor, list[DetDataSample]]:
    """Return two images of different shapes in one batch, with padding."""
    settings = Settings.from_environment(device="cpu")
    trial = trial_of("object-detection", data, "detr", {"image_size": 96, "model.frozen": False}, settings)
    task = task_of(ObjectDetection, trial, settings)
    batches = [task.batch("test", [index]) for index in range(task.size("test"))]
    portrait = next(batch for batch in batches if batch["images"][0].shape[1] > batch["images"][0].shape[2])
    landscape = next(batch for batch in batches if batch["images"][0].shape[1] < batch["images"][0].shape[2])
    return task.preprocess({key: portrait[key] + landscape[key] for key in portrait})


def outputs(model: nn.Module, batch: tuple[Tensor, list[DetDataSample]]) -> list[Tensor]:
    """Return classes and boxes of every decoder layer."""
    with torch.no_grad():
        return list(model(batch[0], batch[1], mode="tensor"))


@pytest.mark.parametrize(("depth", "stages", "cell"), [(18, 3, 16), (50, 4, 32)])
def test_a_backbone_may_end_with_its_third_stage(stages: int, cell: int, depth: int) -> None:
    """The truncated backbone has the weights of the first stages, and half the stride."""
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


def test_the_parameters_equal_those_of_stock_mmdet() -> None:
    ours, theirs = build_detr("detr", {}, classes=80), stock()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in theirs.state_dict().items()
    }
    trained = [{name for name, p in model.named_parameters() if p.requires_grad} for model in (ours, theirs)]
    assert trained[0] == trained[1]
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) == STOCK


@pytest.mark.slow
@pytest.mark.parametrize("data", ["coco-synthetic", "coco"])
def test_evaluation_equals_that_of_stock_mmdet(data: str) -> None:
    if data == "coco" and not (Path(os.environ.get("DROPBENCH_DATA", "data")) / "coco").is_dir():
        pytest.skip("no coco in DROPBENCH_DATA")
    theirs, ours = stock(), build_detr("detr", {}, classes=80).eval()
    ours.load_state_dict(theirs.state_dict())
    batch = inputs(data)
    assert len({sample.img_shape for sample in batch[1]}) == 2
    expected = outputs(theirs, batch)
    bind(ours, build_regularizer("dropkey", ratio=0.3))
    assert expected[0].shape == (6, 2, 100, 81)
    for theirs_out, ours_out in zip(expected, outputs(ours, batch), strict=True):
        assert (theirs_out - ours_out).abs().max() <= 1e-6
    # Watched attention is computed by attend(), with sums in another order: compare twelve layers in double precision.
    double = (batch[0].double(), batch[1])
    called: list[str] = []
    with watch(ours.double(), lambda site, weights: called.append(site.name)):
        watched = outputs(ours, double)
    assert len(set(called)) == len(called) == 18
    for theirs_out, ours_out in zip(outputs(theirs.double(), double), watched, strict=True):
        assert (theirs_out - ours_out).abs().max() <= 1e-12
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_encoder_decoder_and_cross_attention_are_sites() -> None:
    model = build_detr("detr", {}, classes=80)
    report = bind(model, build_regularizer("dropkey", ratio=0.3), schedule="decreasing")
    assert sorted((site.kind, site.layer, site.depth, site.heads) for site in report.bound) == sorted(
        (kind, layer, 6, 8) for kind in ("encoder-self", "decoder-self", "cross") for layer in range(6)
    )
    axes = {(patch.site.kind, patch.site.batch_axis) for patch in find_patches(model)}  # inside of attention others
    assert {("layer", 0), ("feed-forward", 0), ("attention-output", 1)} <= axes
    assert not axes & {("layer", 1), ("feed-forward", 1), ("attention-output", 0)}


def test_the_losses_of_a_whole_batch_are_those_of_mmdet(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = inputs(), build_detr("detr", SMALL, classes=4).eval()

    def losses() -> dict[str, float]:
        with torch.no_grad(), in_mmdet():
            values: dict[str, Tensor] = model(batch[0], batch[1], mode="loss")
        return {name: float(value) for name, value in values.items()}

    ours = losses()
    assert len(ours) == 6
    monkeypatch.delattr(WholeBatchHead, "loss_by_feat_single")
    assert losses() == ours


def test_only_the_regularizer_drops_attention_weights() -> None:
    batch = inputs()
    model = build_detr("detr", {**SMALL, "frozen": False, "dropout": 0.0}, classes=4)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 0.0  # makes passes independent of each other

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        with in_mmdet():
            losses: dict[str, Any] = model.train()(batch[0], batch[1], mode="loss")
        return float(sum(value.detach() for name, value in losses.items() if "loss" in name))

    assert loss(1) == loss(2)
    bind(model, build_regularizer("dropkey", ratio=0.5))
    assert loss(1) != loss(2)
    assert loss(1) == loss(1)
    assert len(sites(model)) == 6


def test_checkpoints_of_mmdet_and_backbones_of_torchvision_are_loaded(tmp_path: Path) -> None:
    source = build_detr("detr", SMALL, classes=4)
    torch.save({"meta": {"epoch": 150}, "state_dict": source.state_dict()}, tmp_path / "detr.pth")
    model = build_detr("detr", SMALL, classes=4)
    assert load_detr_weights(model, tmp_path / "detr.pth") == "weights of detr.pth"
    assert all(torch.equal(value, source.state_dict()[name]) for name, value in model.state_dict().items())
    more_classes = build_detr("detr", SMALL, classes=9)
    note = load_detr_weights(more_classes, tmp_path / "detr.pth")
    assert note == "weights of detr.pth; the classifier is new: 4 classes in the file, 9 in the model"
    backbone = resnet18()
    torch.save(backbone.state_dict(), tmp_path / "resnet18.pth")
    assert load_detr_weights(model, tmp_path / "resnet18.pth") == "backbone of resnet18.pth"
    assert torch.equal(model.state_dict()["backbone.layer1.0.conv1.weight"], backbone.layer1[0].conv1.weight)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        theirs = nn.Sequential(*list(backbone.eval().children())[:-2])(image)
        (ours,) = model.eval().backbone(image)  # type: ignore[operator]
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_checkpoints_of_the_authors_are_loaded(tmp_path: Path) -> None:
    source = build_detr("detr", SMALL, classes=80).state_dict()
    state = {name: value for name, value in source.items() if not name.endswith("num_batches_tracked")}
    theirs = authors_names(state)
    outputs = [*OBJECTS, 91]  # by category id; the last is "no object"
    for name in ("class_embed.weight", "class_embed.bias"):
        classes = torch.full((92, *theirs[name].shape[1:]), torch.nan)
        theirs[name] = classes.index_copy(0, torch.tensor(outputs), theirs[name])
    torch.save({"model": theirs}, tmp_path / "detr.pth")
    model = build_detr("detr", SMALL, classes=80)
    assert load_detr_weights(model, tmp_path / "detr.pth") == "weights of detr.pth"
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no checkpoint", "expected a checkpoint with only tensors and numbers"),
        ({"state_dict": {"encoder.x": torch.zeros(32)}}, r"they do not fit this DETR: \d+ missing \(backbone"),
        ({"state_dict": 3}, "expected tensors by parameter name"),
    ],
    ids=["bytes", "part", "number"],
)
def test_unsuitable_files_raise_an_error_of_one_line(tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with one_line(message):
        load_detr_weights(build_detr("detr", SMALL, classes=4), file)
