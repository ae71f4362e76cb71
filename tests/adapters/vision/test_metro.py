"""Test METRO: parameters, sites, outputs, masked tokens, checkpoints with the authors' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from dropbench.adapters.vision.metro import (
    MASK_VALUE,
    POSITIONS,
    RESNET,
    Metro,
    Stage,
    build_metro,
    load_metro_weights,
    project,
)
from dropbench.harness.errors import InputError

SMPL = (431, 1723, 6890)
SMALL = {"backbone": "resnet10t", "hidden": "16,8", "between": "12", "layers": 2, "num_heads": 2, "feedforward": 16}


def small(seed: int = 0, **options: Any) -> Metro:
    torch.manual_seed(seed)
    model = build_metro("metro", {**SMALL, **options}, image_size=64, joints=14, vertices=(20, 40, 80))
    model.template.normal_()
    with torch.no_grad():
        for parameter in model.trans_encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)  # with fresh weights attention is nearly uniform
    return model.eval()


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("backbone", "total"), [("hrnet_w64", 196_187_885), ("resnet50", 93_684_973)])
def test_used_and_unused_parameters_add_up_to_the_published_count(backbone: str, total: int) -> None:
    with torch.device("meta"):
        model = build_metro("metro", {"backbone": backbone}, image_size=224, joints=14, vertices=SMPL)
    ours = sum(parameter.numel() for parameter in model.trans_encoder.parameters())
    widths = [cast(Stage, stage).cls_head.in_features for stage in model.trans_encoder]
    # The authors' code creates BERT's embeddings (words, positions, segments, norm) and pooler for every block.
    unused = {
        "bert.embeddings": sum((30_522 + POSITIONS + 2 + 2) * width for width in widths),
        "bert.pooler": sum(width * width + width for width in widths),
    }
    assert unused == {"bert.embeddings": 43_701_504, "bert.pooler": 1_131_904}
    assert ours + sum(unused.values()) == 102_256_646  # as counted by the authors' code
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert [tuple(part.weight.shape) for part in (model.conv_learn_tokens, model.upsampling, model.upsampling2)] == [
        (445, 49, 1), (1723, 431), (6890, 1723),
    ]  # fmt: skip


def test_outputs_are_a_camera_joints_and_three_meshes() -> None:
    model = small()
    with torch.no_grad():
        body = model(images())
        assert [tuple(part.shape) for part in body] == [(2, 3), (2, 14, 3), (2, 20, 3), (2, 40, 3), (2, 80, 3)]
        model.template.add_(1)
        assert not torch.allclose(body.full, model(images()).full, atol=1e-3)
    assert "template" not in model.state_dict()
    points, camera = torch.tensor([[[1.0, 2.0, 9.0], [0.0, 0.0, -9.0]]]), torch.tensor([[2.0, 0.5, -1.0]])
    assert project(points, camera).tolist() == [[[3.0, 2.0], [1.0, -2.0]]]  # shifted, then scaled
    with pytest.raises(InputError, match="images of 32×64 pixels: the model was built for 64×64"):
        small()(images()[:, :, :32])


def test_masked_tokens_are_constant_and_others_are_unchanged() -> None:
    model, inputs = small(), []
    model.trans_encoder[0].register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    shown = torch.ones(2, 34)
    shown[0, [3, 20]] = 0
    with torch.no_grad():
        model(images())
        model(images(), shown)
        model(images(), shown.bool())
    plain, masked, boolean = inputs
    assert torch.equal(masked, boolean)
    assert bool((masked[0, [3, 20]] == MASK_VALUE).all())
    kept = shown.bool()
    assert torch.equal(masked[kept], plain[kept])


def authors_state(model: Metro) -> dict[str, Tensor]:
    """Return a state with the names and the unused tensors of the authors' code, for a ResNet."""
    names = {name: number for number, name in RESNET.items()}
    state: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        top = name.split(".")[1]
        renamed = name.startswith("backbone.") and top in names
        state[name.replace(f".{top}.", f".{names[top]}.", 1) if renamed else name] = value
    state["trans_encoder.0.bert.embeddings.word_embeddings.weight"] = torch.ones(3, 16)
    state["trans_encoder.1.bert.pooler.dense.bias"] = torch.ones(8)
    return state


def test_checkpoints_with_the_authors_names_are_loaded_and_unused_tensors_noted(tmp_path: Path) -> None:
    source, model = small(1, backbone="resnet18"), small(2, backbone="resnet18")
    state = authors_state(source)
    assert "backbone.0.weight" in state
    assert "backbone.7.1.bn2.running_var" in state
    torch.save(state, tmp_path / "metro.bin")
    note = load_metro_weights(model, tmp_path / "metro.bin")
    assert note == "weights of metro.bin; 2 unused tensors left out"
    model.template.copy_(source.template)
    with torch.no_grad():
        assert torch.equal(model(images()).full, source(images()).full)


def test_a_checkpoint_of_a_backbone_is_loaded(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    backbone, model = resnet18().eval(), small(backbone="resnet18")
    torch.save(backbone.state_dict(), tmp_path / "resnet18.pth")
    note = load_metro_weights(model, tmp_path / "resnet18.pth")
    assert note.startswith("backbone of resnet18.pth")
    with torch.no_grad():
        features = nn.Sequential(*list(backbone.children())[:-2])(images())
        assert torch.allclose(model.backbone(images()), features, atol=1e-5)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    model = small()
    state = {**model.state_dict(), "upsampling3.weight": torch.ones(2)}
    for change, message in (
        ({}, r"they do not fit this Metro: 1 unknown \(upsampling3.weight\)$"),
        ({"upsampling.weight": torch.ones(40, 21)}, r"upsampling.weight has shape \(40, 21\): expected the model's"),
    ):
        torch.save({**state, **change}, tmp_path / "metro.bin")
        with pytest.raises(InputError, match=message):
            load_metro_weights(model, tmp_path / "metro.bin")
        state.pop("upsampling3.weight", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": "16,8,4"}, "expected one width fewer in `between`"),
        ({"hidden": "16,9"}, "expected multiples of num_heads=2"),
        ({"hidden": "16,wide"}, "hidden=16,wide: expected positive integers"),
        ({"backbone": "alexnet"}, "backbone"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**options)
