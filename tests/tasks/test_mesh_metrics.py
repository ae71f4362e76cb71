"""Distances of bodies, held beside independent code and beside what must hold of any."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.spatial import procrustes as scipy_procrustes
from scipy.spatial.transform import Rotation
from torch import Tensor

from tasks.mesh_metrics import aligned_error, point_error, procrustes
from tasks.outlines.meshes import MeshRecoveryOutline


def bodies(seed: int, count: int = 4, points: int = 14) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).standard_normal((count, points, 3)))


def similar(points: Tensor, seed: int) -> Tensor:
    """Each body turned, scaled and shifted in a way of its own."""
    random = np.random.RandomState([seed, 1])
    turned = points @ torch.from_numpy(Rotation.random(len(points), rng=random).as_matrix())
    scale = torch.from_numpy(random.uniform(0.05, 20, (len(points), 1, 1)))
    return scale * turned + torch.from_numpy(random.uniform(-5, 5, (len(points), 1, 3)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 40))
def test_a_similar_copy_is_no_error(seed: int, points: int) -> None:
    true = bodies(seed, points=points)
    assert aligned_error(similar(true, seed), true).max() < 1e-9
    assert aligned_error(true, true).max() < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_mirror_image_is_an_error_that_no_rotation_takes_away(seed: int) -> None:
    true = bodies(seed)
    mirrored = true * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    found = aligned_error(mirrored, true)
    assert found.min() > 10
    for body, mirror, error in zip(true, mirrored, found, strict=True):
        centred = [(points - points.mean(0)).numpy() for points in (mirror, body)]
        rotation, _ = Rotation.align_vectors(centred[1], centred[0])
        turned = rotation.apply(centred[0])
        scale = (turned * centred[1]).sum() / (turned**2).sum()
        assert float(error) == pytest.approx(
            1000 * np.linalg.norm(scale * turned - centred[1], axis=1).mean(), rel=1e-9
        )


@pytest.mark.parametrize("seed", range(20))
def test_it_is_scipys_where_no_mirror_image_is_nearer(seed: int) -> None:
    true = bodies(seed)
    found = similar(true, seed) + 0.05 * bodies(seed + 1000)
    ours = procrustes(found, true)
    for body, other, made in zip(true.numpy(), found.numpy(), ours.numpy(), strict=True):
        target, aligned, disparity = scipy_procrustes(body, other)  # both of norm 1 around 0
        size = np.linalg.norm(body - body.mean(0))
        assert np.allclose(made, aligned * size + body.mean(0), atol=1e-12)
        assert np.square((made - body) / size).sum() == pytest.approx(disparity, rel=1e-9)
        here, there = other - other.mean(0), body - body.mean(0)
        rotation, sizes = orthogonal_procrustes(here, there)
        assert np.allclose(made, sizes / np.square(here).sum() * here @ rotation + body.mean(0), atol=1e-12)
        assert target.shape == body.shape


def test_the_aligned_copy_is_never_farther_than_any_other_similar_one() -> None:
    true, found = bodies(1), bodies(2)
    best = (procrustes(found, true) - true).square().sum(dim=(1, 2))
    for seed in range(50):
        other = (similar(found, seed) - true).square().sum(dim=(1, 2))
        assert bool((best <= other + 1e-12).all())


@pytest.mark.parametrize(
    "points",
    [
        torch.full((2, 14, 3), 0.3, dtype=torch.float64),
        torch.zeros(2, 14, 3),
        torch.linspace(0, 1, 14)[None, :, None] * torch.tensor([1.0, 2.0, 3.0]),
        torch.cat([bodies(3)[:, :, :2], torch.zeros(4, 14, 1, dtype=torch.float64)], dim=2),
        1e-30 * bodies(3).float(),
    ],
    ids=["one place", "zero", "line", "plane", "tiny"],
)
def test_bodies_without_extent_are_finite(points: Tensor) -> None:
    true = bodies(4, len(points)).to(points.dtype)
    for found in (aligned_error(points, true), aligned_error(true, points), aligned_error(points, points)):
        assert bool(torch.isfinite(found).all())
    assert aligned_error(points, points).max() < 1e-4
    if torch.equal(points, points[:, :1].expand_as(points)):  # nothing but the place can be right
        assert torch.allclose(aligned_error(points, true), point_error(true.mean(1, keepdim=True), true).double())


def test_errors_are_mean_distances_in_millimetres() -> None:
    true = bodies(5)
    moved = true + torch.tensor([0.003, 0.0, 0.004], dtype=torch.float64)
    assert torch.allclose(point_error(moved, true), torch.full((4,), 5.0, dtype=torch.float64))
    assert [(metric.name, metric.higher_is_better, metric.unit) for metric in MeshRecoveryOutline.metrics] == [
        ("mpve", False, "mm"), ("mpjpe", False, "mm"), ("pa-mpjpe", False, "mm"),
    ]  # fmt: skip
