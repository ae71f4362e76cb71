"""Errors of recovered bodies: mPVE, mPJPE and PA-mPJPE (DropKey, Section 4.4), and METRO's losses in training.

Source of the losses: Lin et al. (2021), Section 3.4, with the weights of the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import l1_loss, mse_loss

from dropbench.adapters.vision.metro import Recovered, project

MM_PER_M = 1000.0
JOINTS, VERTICES, PROJECTION = 1000.0, 33.0, 100.0
"""Weights of the terms of the loss."""


def point_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Return the mean distance (B,) in millimeters of points (B, N, 3) in meters."""
    return cast(Tensor, (predicted - true).norm(dim=-1).mean(dim=-1) * MM_PER_M)


def procrustes(points: Tensor, target: Tensor) -> Tensor:
    """Align points with a target by the similarity transform (no reflection) that minimizes the squared distances.

    Points that all coincide are only shifted. For points on a line, the rotation is any of the optimal ones.

    Args:
        points: (B, N, 3).
        target: (B, N, 3), in the same order.

    Returns:
        aligned points (B, N, 3), in float64 or better.

    Source: Umeyama (1991), Least-squares estimation of transformation parameters between two point patterns.
    """
    dtype = torch.promote_types(points.dtype, torch.float64)
    points, target = points.to(dtype), target.to(dtype)
    target_center = target.mean(dim=-2, keepdim=True)
    centered, centered_target = points - points.mean(dim=-2, keepdim=True), target - target_center
    u, singular_values, vh = torch.linalg.svd(centered.mT @ centered_target)
    # If the optimal transform is a reflection, the axis with the smallest singular value is flipped back.
    sign = torch.ones_like(singular_values)
    sign[..., -1] = torch.where(torch.linalg.det(u @ vh) < 0, -1.0, 1.0)
    variance = centered.square().sum(dim=(-2, -1))
    # Points that differ only by their rounding errors coincide.
    rounding = torch.finfo(dtype).eps ** 2 * points.square().sum(dim=(-2, -1))
    scale = torch.where(variance > rounding, (singular_values * sign).sum(dim=-1) / variance, 0.0)
    rotation = u * sign[..., None, :] @ vh
    return cast(Tensor, scale[..., None, None] * centered @ rotation + target_center)


@dataclass(frozen=True, eq=False)
class Frame:
    """The joint regressor of a body model, and the origins of meshes and joints.

    Attributes:
        regressor: (J, V): joints from vertices.
        pelvis: (V,): the origin of meshes from vertices.
        root: numbers of the hip joints, whose mean is the origin of joints.
    """

    regressor: Tensor
    pelvis: Tensor
    root: tuple[int, ...]

    def to(self, like: Tensor) -> Frame:
        """Return the frame with the device and dtype of a tensor."""
        return Frame(self.regressor.to(like), self.pelvis.to(like), self.root)

    def center_on_root(self, joints: Tensor) -> Tensor:
        """Return joints (B, J, 3) relative to the mean of the hips."""
        return joints - joints[:, list(self.root)].mean(dim=1, keepdim=True)

    def center_on_pelvis(self, vertices: Tensor) -> Tensor:
        """Return meshes (B, V, 3) relative to their pelvis."""
        return vertices - (self.pelvis @ vertices)[:, None]


def body_errors(predicted: Tensor, true: Tensor, frame: Frame) -> dict[str, Tensor]:
    """Return each metric (B,) in millimeters of meshes (B, V, 3) in meters and of their joints."""
    joints, true_joints = frame.regressor @ predicted, frame.regressor @ true
    return {
        "mpve": point_error(frame.center_on_pelvis(predicted), frame.center_on_pelvis(true)),
        "mpjpe": point_error(frame.center_on_root(joints), frame.center_on_root(true_joints)),
        "pa-mpjpe": point_error(procrustes(joints, true_joints), true_joints),
    }


class Body(NamedTuple):
    """True bodies in meters, in the camera's axes; meshes are relative to the pelvis.

    Attributes:
        coarse: (B, C, 3): coarsest mesh.
        middle: (B, M, 3): mesh between.
        full: (B, V, 3): full mesh.
        keypoints: (B, J, 2): joints in the image, −1 to 1 from edge to edge.
    """

    coarse: Tensor
    middle: Tensor
    full: Tensor
    keypoints: Tensor


def mesh_losses(predicted: Recovered, true: Body, frame: Frame) -> dict[str, Tensor]:
    """Return the weighted terms of the training loss.

    Returns:
        ``joints``: squared error of the predicted joints and of those of the predicted mesh, relative to the hips;
        ``vertices``: absolute error of the three meshes; ``projection``: squared error of both kinds of joints in the
        image.
    """
    target = frame.regressor @ true.full
    joint_sets = (predicted.joints, frame.regressor @ predicted.full)
    joints = [mse_loss(frame.center_on_root(joints), frame.center_on_root(target)) for joints in joint_sets]
    projections = [mse_loss(project(joints, predicted.camera), true.keypoints) for joints in joint_sets]
    vertices = [l1_loss(getattr(predicted, level), getattr(true, level)) for level in ("coarse", "middle", "full")]
    return {
        "joints": JOINTS * torch.stack(joints).sum(),
        "vertices": VERTICES * torch.stack(vertices).sum(),
        "projection": PROJECTION * torch.stack(projections).sum(),
    }
