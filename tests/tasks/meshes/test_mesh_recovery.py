"""Test mesh recovery: crops of images and bodies, batches, losses, training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dropbench.adapters.vision.metro import Recovered, project
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.seeding import seed_all
from dropbench.harness.trials.optimization import build_optimizer
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.meshes.mesh_recovery import MeshRecovery
from dropbench.tasks.meshes.metrics import Body, mesh_losses
from dropbench.tasks.meshes.person_crop import PersonCrop, rotate_body
from tests.tasks.making import METRO, task_of, trial_of


def trial_with(preset: str = "mini", **overrides: Any) -> Trial:
    return trial_of("mesh-recovery", "humbi-synthetic", "metro", overrides, preset=preset)


def make(**overrides: Any) -> MeshRecovery:
    return task_of(MeshRecovery, trial_with(**{**METRO, **overrides}))


@pytest.fixture(scope="module")
def task() -> MeshRecovery:
    return make()


@pytest.mark.parametrize(("angle", "factor", "side"), [(0.0, 1.0, 40.0), (0.0, 0.8, 150.0), (-50.0, 1.2, 40.0)])
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
    images, mean, std = torch.rand(8, 3, 4, 4), task.mean[:, None, None], task.std[:, None, None]
    seed_all(0)
    noisy = make(noise=0.5)._add_noise((images - mean) / std) * std + mean
    assert -1e-6 <= noisy.min() <= noisy.max() <= 1 + 1e-6
    factors = (noisy / images)[0, 0][images[0, 0] * 1.5 < 1]
    assert len(torch.unique(factors.round(decimals=4))) == 1  # one for each color of an image
    assert (noisy / images)[images * 1.5 < 1].min() == pytest.approx(0.5, abs=0.1)


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


def test_every_output_is_trained(task: MeshRecovery) -> None:
    batch = task.batch("test", [0, 1])
    true = Body(batch["coarse"], batch["middle"], batch["full"], batch["keypoints"])
    parts = [torch.ones(2, 3), torch.zeros(2, 14, 3), *(torch.zeros_like(mesh) for mesh in true[:3])]
    predicted = Recovered(*(part.requires_grad_() for part in parts))
    losses = torch.stack(list(mesh_losses(predicted, true, task.frame).values()))
    assert all(gradient.any() for gradient in torch.autograd.grad(losses.sum(), [*predicted]))


def test_training_learns() -> None:
    task = make(rescale=0, noise=0, hidden_tokens=0)
    seed_all(0)
    model = task.build_model().train()
    optimizer = build_optimizer(model, task.recipe)
    for group in optimizer.param_groups:
        group["lr"] = 2e-3
    batch = task.batch("train", list(range(8)))
    losses = []
    for _ in range(12):
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert task.num_loss_terms(batch) == 8


def test_invalid_options_are_refused_before_a_trial_is_queued() -> None:
    for overrides, message in (
        ({"model.hidden": "33,16", "model.between": "16"}, "expected multiples of num_heads=4"),
        ({"hidden_tokens": 2}, "hidden_tokens"),
    ):
        with pytest.raises(InputError, match=message):
            trial_with(**overrides)


def test_the_paper_preset_equals_metros_training() -> None:
    trial = trial_with("paper")
    recipe = trial.recipe
    published = {key: recipe[key] for key in ("epochs", "batch_size", "optimizer", "lr", "lr_schedule", "lr_drop")}
    assert published == {
        "epochs": 200, "batch_size": 240, "optimizer": "adam", "lr": 1e-4, "lr_schedule": "step", "lr_drop": 0.5,
    }  # fmt: skip
    assert (recipe["rotate"], recipe["rescale"], recipe["noise"], recipe["hidden_tokens"]) == (30, 0.25, 0.4, 0.3)
    assert recipe["model"] == {}
    assert MODELS.entry("metro").facts["sample"]["vertices"] == (431, 1723, 6890)
    assert recipe["image_size"] == MODELS.entry("metro").facts["sample"]["image_size"]
