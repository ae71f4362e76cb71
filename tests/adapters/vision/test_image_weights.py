"""Test checkpoints of the original repositories: names, wrappers, other heads and grids, damaged files."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dropbench import InputError
from dropbench.adapters.vision.image_weights import load_image_weights
from dropbench.harness.models.catalog import IMAGENET, MODELS
from tests.damage import TouchesAFile
from tests.input_errors import one_line
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES
LAYOUTS: dict[str, list[Any]] = {
    name: layout
    for file in ("t2t_vit.json", "volo.json")
    for name, layout in json.loads((FOLDER / file).read_text("utf-8"))["layouts"].items()
}
"""For each model, the number of tensors of its state_dict, and the SHA-256 of its sorted lines "name shape"."""
SMALL: dict[str, dict[str, Any]] = {
    "t2t-vit-cifar": {"embed_dim": 12, "depth": 1, "num_heads": 2, "token_dim": 4},
    "volo-cifar": {"embed_dim": 16, "layers": "1,1", "num_heads": 2, "stem_dim": 4},
}
State = dict[str, Tensor]


def build(name: str, seed: int = 0, image: int = 32, classes: int = 7, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    shape = {"image_size": (image, image), "channels": 3, "classes": classes}
    return MODELS.get(name)(name, {**SMALL[name], **options}, **shape)


def equal(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@pytest.fixture(params=SMALL)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("model", LAYOUTS)
def test_names_and_shapes_equal_those_of_the_authors_code(model: str) -> None:
    with torch.device("meta"):
        state = MODELS.get(model)(model, {}, **IMAGENET).state_dict()
    lines = sorted(f"{key} {tuple(value.shape)}" for key, value in state.items())
    assert [len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()] == LAYOUTS[model]


def training_script(state: State) -> Any:
    """Return a checkpoint as saved by timm's training script, with its options."""
    options = argparse.Namespace(model="t2t_vit_14", lr=5e-4, mean=None, data="imagenet")
    optimizer = {"state": {0: {"step": 3, "exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 5e-4, "params": [0]}]}
    return {"epoch": 300, "arch": "t2t_vit_14", "state_dict": state, "optimizer": optimizer, "args": options,
            "version": 2, "metric": 81.5}  # fmt: skip


def averaged(state: State) -> Any:
    return {"state_dict": {key: torch.zeros_like(value) for key, value in state.items()}, "state_dict_ema": state}


def transfer(state: State) -> Any:
    return {"net": {f"module.{key}": value for key, value in state.items()}, "acc": 98.3, "epoch": 59}


@pytest.mark.parametrize(
    ("wrap", "wrapper"),
    [
        (training_script, " (state_dict)"),
        (averaged, " (state_dict_ema)"),
        (transfer, " (net)"),
    ],
)
def test_checkpoints_of_the_repositories_are_loaded(name: str, wrap: Any, wrapper: str, tmp_path: Path) -> None:
    source, model = build(name, seed=1), build(name)
    torch.save(wrap(source.state_dict()), tmp_path / "81.5.pth.tar")
    assert load_image_weights(model, tmp_path / "81.5.pth.tar") == f"weights of 81.5.pth.tar{wrapper}"
    assert equal(source.state_dict(), model.state_dict())
    again = build(name)
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    assert load_image_weights(again, tmp_path / "model.safetensors") == "weights of model.safetensors"
    assert equal(source.state_dict(), again.state_dict())


def test_a_head_for_other_classes_is_kept_from_the_model_and_noted(name: str, tmp_path: Path) -> None:
    source, model = build(name, seed=1, classes=1000), build(name, classes=7)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save(source.state_dict(), tmp_path / "w.pth")
    note = load_image_weights(model, tmp_path / "w.pth")
    assert note == "weights of w.pth; the classifier is new: 1000 classes in the file, 7 in the model"
    for key, value in model.state_dict().items():
        assert torch.equal(value, (before if "head" in key else source.state_dict())[key]), key
    heads = {"head.weight", "head.bias"} | ({"aux_head.weight", "aux_head.bias"} if name == "volo-cifar" else set())
    assert {key for key in before if "head" in key} == heads


def bicubic(old: int, new: int) -> Tensor:
    """Return the weights (new, old) of bicubic interpolation: Keys's kernel with a = -0.75 and replicated edges."""
    weights = torch.zeros(new, old)
    for index in range(new):
        center = (index + 0.5) * old / new - 0.5
        for neighbor in range(math.floor(center) - 1, math.floor(center) + 3):
            x = abs(center - neighbor)
            weight = 1.25 * x**3 - 2.25 * x**2 + 1 if x <= 1 else -0.75 * (x**3 - 5 * x**2 + 8 * x - 4)
            weights[index, min(max(neighbor, 0), old - 1)] += weight
    return weights


def test_positions_are_resized_to_the_models_grid(name: str, tmp_path: Path) -> None:
    source, model = build(name, seed=1, stride=4), build(name, image=64, stride=4)
    state = source.state_dict()
    state["pos_embed"].normal_()
    torch.save(state, tmp_path / "w.pth")
    note = load_image_weights(model, tmp_path / "w.pth")
    assert note == "weights of w.pth; positions resized from 8×8 to 16×16"
    before, after = (instance.state_dict()["pos_embed"] for instance in (source, model))
    if name == "t2t-vit-cifar":
        assert torch.equal(after[:, 0], before[:, 0])
        before, after = before[:, 1:].unflatten(1, (8, 8)), after[:, 1:].unflatten(1, (16, 16))
    resize = bicubic(8, 16)
    torch.testing.assert_close(after, torch.einsum("ir,brcd,jc->bijd", resize, before, resize))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    source = build("t2t-vit-cifar")
    torch.save(source.state_dict(), tmp_path / "w.pth")
    with pytest.raises(
        InputError, match=r"w.pth: they do not fit this T2TViT: 11 missing \(blocks.1.attn.proj.bias, .*, …\)$"
    ):
        load_image_weights(build("t2t-vit-cifar", depth=2, mlp_ratio=3.0), tmp_path / "w.pth")
    performer = build("t2t-vit-cifar", tokens="performer")
    with pytest.raises(InputError, match=r"missing \(tokens_to_token.attention1.kqv.bias, .*unknown \(tokens_to_token"):
        load_image_weights(performer, tmp_path / "w.pth")
    coarse = build("t2t-vit-cifar", stride=16)
    message = r"attention1.norm1.weight has shape \(27,\): expected the model's \(147,\)$"
    with pytest.raises(InputError, match=message):
        load_image_weights(coarse, tmp_path / "w.pth")


@pytest.mark.parametrize(("key", "shape"), [("pos_embed", (1, 0, 12)), ("pos_embed", (1, 6, 12)), ("head.weight", ())])
def test_tensors_of_impossible_shapes_are_refused(key: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    state = build("t2t-vit-cifar").state_dict()
    torch.save({**state, key: torch.ones(shape)}, tmp_path / "w.pth")
    with pytest.raises(InputError, match=rf"w.pth: {key} has shape {re.escape(str(shape))}: expected the model's"):
        load_image_weights(build("t2t-vit-cifar"), tmp_path / "w.pth")


@pytest.mark.parametrize("kind", ["missing", "garbage", "cut", "harmful", "numbers", "nested"])
def test_unsuitable_files_are_refused_and_change_nothing(kind: str, tmp_path: Path) -> None:
    path, touched = tmp_path / "w.pth", tmp_path / "touched"
    model = build("t2t-vit-cifar")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    if kind == "garbage":
        path.write_bytes(bytes(range(256)) * 10)
    elif kind == "cut":
        torch.save(model.state_dict(), path)
        path.write_bytes(path.read_bytes()[:-3000])
    elif kind == "harmful":
        torch.save({"state_dict": model.state_dict(), "args": TouchesAFile(touched)}, path)
    elif kind == "numbers":
        torch.save([1, 2, 3], path)
    elif kind == "nested":
        torch.save({"state_dict": {"head.weight": {"deeper": torch.ones(1)}}}, path)
    with one_line(r"^weights .*w.pth: ") as error:
        load_image_weights(model, path)
    assert ("found " in str(error.value)) == (kind == "harmful")
    assert len(str(error.value)) < 400
    assert equal(model.state_dict(), before)
    assert not touched.exists()
    if kind == "harmful":  # the pickle really is harmful
        assert torch.load(path, weights_only=False)
        assert touched.exists()
