"""METRO's losses (Lin et al. 2021, Section 3.4), with the weights of the authors' code."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import l1_loss, mse_loss

from adapters.vision.metro import Recovered, project
from tasks.meshes.metrics import Frame

JOINTS, VERTICES, PROJECTION = 1000.0, 33.0, 100.0


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

    Args:
        predicted: the model's output.
        true: the targets.
        frame: the joint regressor.

    Returns:
        ``joints``: squared error of the predicted joints and of those of the predicted mesh, relative to the hips;
        ``vertices``: absolute error of the three meshes; ``projection``: squared error of both kinds of joints in the
        image.
    """
    target = frame.joints(true.full)
    joint_sets = (predicted.joints, frame.joints(predicted.full))
    joints = [mse_loss(frame.center_on_root(joints), frame.center_on_root(target)) for joints in joint_sets]
    projections = [mse_loss(project(joints, predicted.camera), true.keypoints) for joints in joint_sets]
    vertices = [l1_loss(getattr(predicted, level), getattr(true, level)) for level in ("coarse", "middle", "full")]
    return {
        "joints": JOINTS * torch.stack(joints).sum(),
        "vertices": VERTICES * torch.stack(vertices).sum(),
        "projection": PROJECTION * torch.stack(projections).sum(),
    }
