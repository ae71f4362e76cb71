"""Test pre-trained image models of transformers and timm: heads, other sizes, normalization, and the linear probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from dropbench.adapters.vision.image_encoder import build_image_encoder
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.training.regularization import bind_trial
from dropbench.tasks.floors.floors import floors
from dropbench.tasks.floors.probe import INVERSE_PENALTIES, frozen_features
from dropbench.tasks.images.image_classification import ImageClassification
from tests.input_errors import one_line
from tests.tasks.making import CPU, task_of, trial_of

SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "ViT": {"patch_size": 4, "intermediate_size": 32},
    "DeiT": {"patch_size": 4, "intermediate_size": 32},
    "Dinov2": {"patch_size": 4, "mlp_ratio": 2},
    "Dinov2WithRegisters": {"patch_size": 4, "mlp_ratio": 2, "num_register_tokens": 2},
}
TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2},
    "deit_tiny_patch16_224": {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2},
    "swin_tiny_patch4_window7_224": {"window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)},
    "resnet10t": {},
}
IMAGES = {"image_size": 16, "channels": 3, "steps": 2, "batch_size": 8}


def transformers_folder(path: Path, family: str, **options: Any) -> nn.Module:
    """Save a model without a classifier, and return it."""
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**SMALL, **FAMILIES[family], **options)
    model: Any = getattr(transformers, f"{family}Model")(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(path)
    return cast(nn.Module, model.eval())


def timm_folder(path: Path, name: str, size: int = 32, classes: int = 7, **config: Any) -> nn.Module:
    """Save a model as timm does for the hub, and return it."""
    import timm
    from timm.models import save_for_hf

    sizes: Any = {} if name == "resnet10t" else {"img_size": size}
    torch.manual_seed(1)
    model = timm.create_model(name, num_classes=classes, **sizes, **TIMM[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_for_hf(model, str(path), model_args={**TIMM[name], **sizes}, model_config={"num_classes": classes})
    file = path / "config.json"
    content = json.loads(file.read_text("utf-8"))
    content["pretrained_cfg"] |= {"input_size": [3, size, size], "num_classes": classes, **config}
    file.write_text(json.dumps(content))
    return model.eval()


def images(size: int) -> Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))


def build(path: Path, size: int, classes: int) -> Any:
    shape: Any = {"image_size": (size, size), "channels": 3, "classes": classes}
    return build_image_encoder("image-encoder", {}, **shape, weights=path).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_transformers_computes_what_the_library_does(tmp_path: Path, family: str) -> None:
    plain: Any = transformers_folder(tmp_path, family)
    model = build(tmp_path, 32, 5)
    assert sorted(model.new) == ["classifier.bias", "classifier.weight"]
    body = getattr(model.model, model.model.base_model_prefix)
    with torch.no_grad():
        torch.testing.assert_close(
            body(pixel_values=images(32)).last_hidden_state, plain(pixel_values=images(32)).last_hidden_state
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_of_transformers_are_resampled_as_timm_does(tmp_path: Path, family: str) -> None:
    from timm.layers.pos_embed import resample_abs_pos_embed

    plain: Any = transformers_folder(tmp_path, family)
    model = build(tmp_path, 20, 5)
    state, resized = plain.state_dict(), getattr(model.model, model.model.base_model_prefix).state_dict()
    different = [key for key in resized if key in state and state[key].shape != resized[key].shape]
    assert different == ["embeddings.position_embeddings"]
    prefix = 2 if family == "DeiT" else 1
    expected = resample_abs_pos_embed(state[different[0]], [5, 5], num_prefix_tokens=prefix)
    torch.testing.assert_close(resized[different[0]], expected)
    assert all(torch.equal(resized[key], state[key]) for key in resized if key in state and key not in different)
    assert model(images(20)).shape == (2, 5)


@pytest.mark.parametrize("name", TIMM)
def test_a_model_of_timm_is_loaded_whole_or_with_a_new_classifier(tmp_path: Path, name: str) -> None:
    plain = timm_folder(tmp_path, name)
    whole, other = build(tmp_path, 32, 7), build(tmp_path, 64, 5)
    with torch.no_grad():
        torch.testing.assert_close(whole(images(32)), plain(images(32)))
        assert other(images(64)).shape == (2, 5)
    assert whole.new == ()
    assert other.new == ("classifier.weight", "classifier.bias")
    own, state = other.state_dict(), plain.state_dict()
    changed = {key for key in own if own[key].shape != state[key].shape or not torch.equal(own[key], state[key])}
    assert all("head" in key or "fc" in key or "pos_embed" in key for key in changed)


def test_what_does_not_fit_is_an_error_of_one_line(tmp_path: Path) -> None:
    transformers_folder(tmp_path / "vit", "ViT")
    timm_folder(tmp_path / "timm", "vit_tiny_patch16_224")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "file.pt").touch()
    with one_line("patches of 4×4 pixels do not divide images of 18×18 pixels"):
        build(tmp_path / "vit", 18, 5)
    with one_line("expected `--weights` with a folder, `timm:NAME` or `hf:ORGANISATION/NAME`"):
        build(tmp_path / "file.pt", 32, 5)
    with one_line("weights .*bert"):
        build(tmp_path / "bert", 32, 5)
    shape: Any = {"image_size": (32, 32), "channels": 3, "classes": 5, "weights": tmp_path / "vit"}
    with one_line("vit has no drop_path_rate: remove it"):
        build_image_encoder("image-encoder", {"drop_path_rate": 0.1}, **shape)
    with one_line("images have 3 channels: pass `--set channels=3`"):
        build_image_encoder("image-encoder", {}, **{**shape, "channels": 1})
    with one_line("patches of 4×4 pixels do not divide images of 18×18 pixels"):
        build(tmp_path / "timm", 18, 5)


def task(path: Path, data: str = "digits", **overrides: Any) -> Any:
    trial = trial_of("image-classification", data, "image-encoder", {**IMAGES, **overrides}, weights=str(path))
    return task_of(ImageClassification, trial)


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_images_are_normalized_as_the_checkpoint_says_unless_the_recipe_does(tmp_path: Path, library: str) -> None:
    mean, std = [0.5, 0.25, 0.125], [0.5, 0.5, 0.25]
    if library == "timm":
        timm_folder(tmp_path, "vit_tiny_patch16_224", mean=mean, std=std)
    else:
        transformers_folder(tmp_path, "ViT")
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": mean, "image_std": std}))
    own, of_data, imagenet = (
        task(tmp_path),
        task(tmp_path, normalization="data"),
        task(tmp_path, normalization="imagenet"),
    )
    assert (own.mean.tolist(), own.std.tolist()) == (mean, std)
    assert any("normalized as the checkpoint says: mean 0.500, 0.250, 0.125" in note for note in own.notes)
    pixels = own.batch("test", [0])[0] * own.std[:, None, None] + own.mean[:, None, None]
    torch.testing.assert_close(of_data.batch("test", [0])[0] * of_data.std + of_data.mean, pixels)
    assert len(of_data.mean) == 1
    assert imagenet.mean.tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert own.trial.id != of_data.trial.id


def test_weights_that_do_not_say_so_are_normalized_by_the_data(tmp_path: Path) -> None:
    transformers_folder(tmp_path, "ViT")
    assert torch.equal(task(tmp_path).mean, task(tmp_path, normalization="data").mean)


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_every_layer_of_an_encoder_is_regularized(tmp_path: Path, library: str) -> None:
    if library == "timm":
        timm_folder(tmp_path, "vit_tiny_patch16_224")
    else:
        transformers_folder(tmp_path, "Dinov2")
    prepared = task(tmp_path)
    trial = trial_of("image-classification", "digits", "image-encoder", IMAGES, weights=str(tmp_path),
                     regularizer="dropkey", params={"ratio": 0.5})  # fmt: skip
    model = prepared.build_model()
    report = bind_trial(model, trial)
    assert [site.grid for site in report.bound] == [(4, 4)] * 2
    batch = prepared.batch("train", range(8))
    torch.manual_seed(0)
    assert not torch.equal(model.train()(batch[0]), model(batch[0]))
    assert torch.equal(model.eval()(batch[0]), model(batch[0]))


def test_the_linear_probe_is_logistic_regression_on_what_the_classifier_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain: Any = transformers_folder(tmp_path / "vit", "ViT")
    prepared = task(tmp_path / "vit", data="digits-small", image_size=32)
    found = {floor.name: floor.value for floor in floors(prepared.trial, CPU)}
    assert list(found) == ["majority class", "logistic regression on pixels", "linear probe of vit, 32 px"]

    def features(split: Any) -> Any:
        pixels = prepared.plain_images(split, range(prepared.size(split)))
        with torch.no_grad():
            return plain(pixel_values=pixels).last_hidden_state[:, 0].numpy()

    rows, labels = {name: features(name) for name in prepared.splits}, prepared.labels
    mean, std = rows["train"].mean(0), rows["train"].std(0)
    scores: dict[float, float] = {}
    for c in INVERSE_PENALTIES:
        probe = LogisticRegression(C=c, max_iter=1000).fit((rows["train"] - mean) / std, labels["train"])
        dev, test = (
            float(np.mean(probe.predict((rows[name] - mean) / std) == labels[name].numpy())) for name in ("dev", "test")
        )
        scores.setdefault(dev, 100 * test)
    assert found["linear probe of vit, 32 px"] == pytest.approx(scores[max(scores)], abs=0.3)
    assert floors(prepared.trial, CPU)[-1].value == found["linear probe of vit, 32 px"]


def test_features_are_the_inputs_of_layers_that_score_a_whole_image() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.aux, self.other = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.other(x[:, 0])
            return cast(Tensor, self.head(x[:, 0]) + self.aux(x).amax(dim=1))

    x = torch.rand(2, 5, 4)
    assert torch.equal(frozen_features(Tokens(), x, classes=3), x[:, 0])


@pytest.mark.parametrize(
    ("model", "config", "sizes", "message"),
    [
        ("transformers-encoder", "ViTConfig", {"vocabulary": 2, "max_length": 8}, "vit reads no text: expected a mode"),
        ("image-encoder", "BertConfig", {"image_size": (8, 8), "channels": 3}, "bert classifies no images: expected"),
    ],
)
def test_weights_of_another_kind_of_input_are_refused(
    tmp_path: Path, model: str, config: str, sizes: dict[str, Any], message: str
) -> None:
    import transformers

    getattr(transformers, config)().save_pretrained(tmp_path)
    with one_line(message):
        MODELS.get(model)(model, {}, **sizes, classes=2, weights=tmp_path)
