"""Test errors of bodies against independent code and invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor

from dropbench.tasks.meshes.metrics import point_error, procrustes
from dropbench.tasks.meshes.spec import MeshRecoverySpec


def bodies(seed: int, count: int = 4, points: int = 14) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).standard_normal((count, points, 3)))


def aligned_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Return PA-mPJPE as `body_errors` computes it."""
    return point_error(procrustes(predicted, true), true)


def transform(points: Tensor, seed: int) -> Tensor:
    """Apply a random similarity transform to each body."""
    random = np.random.RandomState([seed, 1])
    rotated = points @ torch.from_numpy(Rotation.random(len(points), rng=random).as_matrix())
    scale = torch.from_numpy(random.uniform(0.05, 20, (len(points), 1, 1)))
    return scale * rotated + torch.from_numpy(random.uniform(-5, 5, (len(points), 1, 3)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 40))
def test_a_similarity_transform_has_no_error(seed: int, points: int) -> None:
    true = bodies(seed, points=points)
    assert aligned_error(transform(true, seed), true).max() < 1e-9
    assert aligned_error(true, true).max() < 1e-9


def test_a_reflection_has_an_error_that_no_rotation_removes() -> None:
    true = bodies(0)
    mirrored = true * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    errors = aligned_error(mirrored, true)
    assert errors.min() > 10
    for body, mirror, error in zip(true, mirrored, errors, strict=True):
        centered = [(points - points.mean(0)).numpy() for points in (mirror, body)]
        rotation, _ = Rotation.align_vectors(centered[1], centered[0])
        rotated = rotation.apply(centered[0])
        scale = (rotated * centered[1]).sum() / (rotated**2).sum()
        assert float(error) == pytest.approx(
            1000 * np.linalg.norm(scale * rotated - centered[1], axis=1).mean(), rel=1e-9
        )


@pytest.mark.parametrize(
    "points",
    [
        torch.full((2, 14, 3), 0.3, dtype=torch.float64),
        torch.zeros(2, 14, 3),
        torch.linspace(0, 1, 14)[None, :, None] * torch.tensor([1.0, 2.0, 3.0]),
        torch.cat([bodies(3)[:, :, :2], torch.zeros(4, 14, 1, dtype=torch.float64)], dim=2),
        1e-30 * bodies(3).float(),
    ],
    ids=["coincident", "zero", "line", "plane", "tiny"],
)
def test_bodies_without_extent_are_finite(points: Tensor) -> None:
    true = bodies(4, len(points)).to(points.dtype)
    for errors in (aligned_error(points, true), aligned_error(true, points), aligned_error(points, points)):
        assert bool(torch.isfinite(errors).all())
    assert aligned_error(points, points).max() < 1e-4
    if torch.equal(points, points[:, :1].expand_as(points)):  # coincident points can only be shifted
        assert torch.allclose(aligned_error(points, true), point_error(true.mean(1, keepdim=True), true).double())


def test_errors_are_mean_distances_in_millimeters() -> None:
    true = bodies(5)
    moved = true + torch.tensor([0.003, 0.0, 0.004], dtype=torch.float64)
    assert torch.allclose(point_error(moved, true), torch.full((4,), 5.0, dtype=torch.float64))
    assert [(metric.name, metric.higher_is_better, metric.unit) for metric in MeshRecoverySpec.metrics] == [
        ("mpve", False, "mm"), ("mpjpe", False, "mm"), ("pa-mpjpe", False, "mm"),
    ]  # fmt: skip
