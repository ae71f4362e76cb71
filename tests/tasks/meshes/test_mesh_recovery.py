"""Test mesh recovery: crops of images and bodies, batches, losses, training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropbench.adapters.vision.metro import Recovered, project
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.trials.optimization import build_optimizer
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.meshes.mesh_recovery import MeshRecovery
from dropbench.tasks.meshes.metrics import Body, mesh_losses
from dropbench.tasks.meshes.person_crop import PersonCrop, rotate_body
from tests.training import assert_resumes

SMALL: dict[str, Any] = {
    "image_size": 64, "batch_size": 8, "model.hidden": "32,16", "model.between": "16", "model.layers": 1,
    "model.num_heads": 2, "model.feedforward": 32,
}  # fmt: skip


def trial_of(data: str = "humbi-synthetic", preset: str = "mini", **overrides: Any) -> Trial:
    request = TrialRequest(task="mesh-recovery", data=data, model="metro", preset=preset, overrides=overrides)
    return MeshRecovery.trial_for(request, Settings.from_environment())


def make(**overrides: Any) -> MeshRecovery:
    task = TASKS.get("mesh-recovery")(trial_of(**{**SMALL, **overrides}), Settings.from_environment(device="cpu"))
    assert isinstance(task, MeshRecovery)
    task.setup()
    return task


@pytest.fixture(scope="module")
def task() -> MeshRecovery:
    return make()


@pytest.mark.parametrize(("angle", "factor"), [(0.0, 1.0), (0.0, 0.8), (30.0, 1.0), (-50.0, 1.2)])
@pytest.mark.parametrize("side", [40.0, 150.0])
def test_a_crop_maps_pixels_and_points_in_the_same_way(angle: float, factor: float, side: float) -> None:
    """The center of a bright spot in the crop equals the mapped point."""
    for point in ((60.5, 80.5), (70.5, 85.5)):
        image = np.zeros((160, 120, 3), np.uint8)
        x, y = (int(value) for value in point)
        image[y - 1 : y + 2, x - 1 : x + 2] = 255
        crop = PersonCrop((64.0, 84.0), side, 96).augmented(angle, factor)
        cropped = crop.apply(image)
        assert cropped.shape == (96, 96, 3)
        grid = (np.arange(96) + 0.5) / 48 - 1
        weights = cropped[:, :, 0] / cropped[:, :, 0].sum()
        center = [(weights.sum(axis=0) * grid).sum(), (weights.sum(axis=1) * grid).sum()]
        assert center == pytest.approx(crop.to_crop(np.array([point]))[0], abs=0.03)


def test_the_crop_around_a_body_contains_all_of_it() -> None:
    points = np.random.RandomState(0).uniform((10, 20), (50, 90), (100, 2))
    crop = PersonCrop.around(points, 64)
    assert np.abs(crop.to_crop(points)).max() == pytest.approx(1 / 1.2)
    assert rotate_body(np.array([[1.0, 0.0, 5.0]]), 90.0)[0] == pytest.approx([0, 1, 5])
    black = PersonCrop((-500.0, -500.0), 20, 32).apply(np.full((8, 8, 3), 255, np.uint8))
    assert not black.any()


def test_batches_have_bodies_relative_to_the_pelvis_and_joints_in_the_image(task: MeshRecovery) -> None:
    batch = task.batch("test", [0, 1, 2])
    coarse, middle, full = task.body.levels
    assert {name: tuple(values.shape) for name, values in batch.items()} == {
        "images": (3, 3, 64, 64), "shown": (3, 14 + coarse), "coarse": (3, coarse, 3), "middle": (3, middle, 3),
        "full": (3, full, 3), "keypoints": (3, 14, 2),
    }  # fmt: skip
    assert float((task.frame.pelvis @ batch["full"]).abs().max()) < 1e-5
    assert batch["keypoints"].abs().max() < 1
    assert bool((batch["shown"] == 1).all())
    # At a large distance the projection of joints is nearly that of a weak-perspective camera.
    joints = (task.frame.regressor @ batch["full"])[..., :2].flatten()
    assert float(torch.corrcoef(torch.stack([joints, batch["keypoints"].flatten()]))[0, 1]) > 0.9
    assert torch.equal(task.batch("test", [0])["images"], task.batch("test", [0])["images"])


def test_a_share_of_the_tokens_is_masked_in_training(task: MeshRecovery) -> None:
    seed_all(0)
    shown = torch.stack([task._token_mask(True) for _ in range(400)])
    hidden = 1 - shown
    joints, vertices = hidden[:, :14].sum(dim=1), hidden[:, 14:].sum(dim=1)
    assert joints.max() == int(0.3 * 14 - 1e-9)
    assert vertices.max() <= 0.3 * (shown.shape[1] - 14)
    assert float(vertices.mean()) == pytest.approx(0.15 * (shown.shape[1] - 14), rel=0.15)
    assert float(hidden.mean(dim=0)[14:].std()) < 0.05  # all are masked equally often


def test_rotation_and_rescaling_are_bounded_and_applied_to_the_body(task: MeshRecovery) -> None:
    task = make(rotate=30.0, rescale=0.25)
    seed_all(1)
    changes = [task._random_change() for _ in range(500)]
    angles, sizes = np.array(changes).T
    assert (angles == 0).mean() == pytest.approx(0.6, abs=0.07)
    assert 40 < np.abs(angles).max() <= 60
    assert (sizes.min(), sizes.max()) == (0.75, 1.25)
    batch = task.batch("train", list(range(16)))
    joints = (task.frame.regressor @ batch["full"])[..., :2].flatten()
    assert float(torch.corrcoef(torch.stack([joints, batch["keypoints"].flatten()]))[0, 1]) > 0.9


def test_noise_keeps_colors_in_their_range(task: MeshRecovery) -> None:
    images = torch.rand(8, 3, 4, 4)
    mean, std = task.mean[:, None, None], task.std[:, None, None]
    seed_all(0)
    noisy = make(noise=0.5)._add_noise((images - mean) / std) * std + mean
    assert noisy.min() >= -1e-6
    assert noisy.max() <= 1 + 1e-6
    factors = (noisy / images)[images * 1.5 < 1].sort().values
    assert (factors[0] - 0.5).abs() < 0.1
    assert len(torch.unique((noisy / images)[0, 0][images[0, 0] * 1.5 < 1].round(decimals=4))) == 1


def test_a_perfect_prediction_has_no_loss_and_no_error(task: MeshRecovery) -> None:
    batch = task.batch("test", [0, 1])
    true = Body(batch["coarse"], batch["middle"], batch["full"], batch["keypoints"])
    joints = task.frame.regressor @ batch["full"]
    camera = torch.tensor([[1.0, 0.1, 0.2]] * 2)
    exact = true._replace(keypoints=project(joints, camera))
    predicted = Recovered(camera, joints, true.coarse, true.middle, true.full)
    losses = mesh_losses(predicted, exact, task.frame)
    assert all(float(value) == pytest.approx(0, abs=1e-6) for value in losses.values())

    class Perfect(torch.nn.Module):
        def forward(self, images: Any) -> Recovered:
            return predicted._replace(full=true.full + 3)

    errors = task.evaluate(Perfect(), "test", [batch])
    assert list(errors) == ["mpve", "mpjpe", "pa-mpjpe"]
    assert max(errors.values()) < 0.01


@pytest.mark.parametrize("part", ["joints", "coarse", "middle", "full", "camera"])
def test_every_output_is_trained(task: MeshRecovery, part: str) -> None:
    batch = task.batch("test", [0, 1])
    true = Body(batch["coarse"], batch["middle"], batch["full"], batch["keypoints"])
    predicted = Recovered(torch.ones(2, 3), torch.zeros(2, 14, 3), *(torch.zeros_like(mesh) for mesh in true[:3]))
    predicted = predicted._replace(**{part: getattr(predicted, part).requires_grad_()})
    torch.stack(list(mesh_losses(predicted, true, task.frame).values())).sum().backward()
    gradient = getattr(predicted, part).grad
    assert gradient is not None
    assert bool((gradient != 0).any())


def test_training_learns() -> None:
    task = make(rescale=0, noise=0, hidden_tokens=0)
    seed_all(0)
    model = task.build_model().train()
    optimizer = build_optimizer(model, task.recipe)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    batch = task.batch("train", list(range(8)))
    losses = []
    for _ in range(25):
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert task.num_loss_terms(batch) == 8


@pytest.mark.slow
def test_interrupted_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    request = TrialRequest(
        task="mesh-recovery", data="humbi-synthetic", model="metro", regularizer="dropkey", params={"ratio": 0.3},
        overrides={**SMALL, "image_size": 32, "steps": 4, "evaluate_every": 4, "rotate": 30, "noise": 0.4},
    )  # fmt: skip
    trial = MeshRecovery.trial_for(request, Settings.from_environment())
    whole = assert_resumes(tmp_path, trial)
    assert set(whole["metrics"]) >= {"test/mpve", "test/mpjpe", "test/pa-mpjpe", "dev/mpve"}


def test_invalid_options_are_refused_before_a_trial_is_queued() -> None:
    for overrides, message in (
        ({"model.hidden": "33,16", "model.between": "16"}, "expected multiples of num_heads=4"),
        ({"model.layer": 3}, "did you mean"),
        ({"hidden_tokens": 2}, "hidden_tokens"),
    ):
        with pytest.raises(InputError, match=message):
            MeshRecovery.check(trial_of(**overrides))


def test_the_paper_preset_equals_metros_training() -> None:
    trial = trial_of(preset="paper")
    recipe = trial.recipe
    published = {key: recipe[key] for key in ("epochs", "batch_size", "optimizer", "lr", "lr_schedule", "lr_drop")}
    assert published == {
        "epochs": 200, "batch_size": 240, "optimizer": "adam", "lr": 1e-4, "lr_schedule": "step", "lr_drop": 0.5,
    }  # fmt: skip
    assert (recipe["rotate"], recipe["rescale"], recipe["noise"], recipe["hidden_tokens"]) == (30, 0.25, 0.4, 0.3)
    assert recipe["model"] == {}
    assert MODELS.entry("metro").facts["sample"]["vertices"] == (431, 1723, 6890)
    assert recipe["image_size"] == MODELS.entry("metro").facts["sample"]["image_size"]


def test_makehumans_mesh_is_a_body_model(tmp_path: Path) -> None:
    root = os.environ.get("DROPBENCH_DATA")
    path = Path(root or "") / "makehuman" / "base.obj"
    if not root or not path.is_file():
        pytest.skip("needs makehuman/base.obj in DROPBENCH_DATA")
    from dropbench.tasks.data.meshes.body_model import free_body_model

    body = free_body_model(path)
    model: Any = MODELS.get("metro")(
        "metro",
        {"backbone": "resnet10t", "hidden": "16,8", "between": "8", "layers": 1, "num_heads": 2, "feedforward": 16},
        image_size=64, joints=14, vertices=body.levels,
    )  # fmt: skip
    model.template.copy_(torch.from_numpy(body.tokens()))
    with torch.no_grad():
        assert model.eval()(torch.zeros(1, 3, 64, 64)).full.shape == (1, 13380, 3)
