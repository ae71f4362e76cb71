"""METRO's losses (Lin et al. 2021, Section 3.4), with the weights of its authors' code."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import l1_loss, mse_loss

from adapters.metro import Recovered, project
from tasks.mesh_metrics import Frame

JOINTS, VERTICES, PROJECTION = 1000.0, 33.0, 100.0


class Body(NamedTuple):
    """A true body, in metres and in the camera's directions.

    Attributes:
        coarse: (B, C, 3), around the pelvis, as the next two.
        middle: (B, M, 3).
        full: (B, V, 3).
        keypoints: (B, J, 2): joints in the image, −1 to 1 from edge to edge.
    """

    coarse: Tensor
    middle: Tensor
    full: Tensor
    keypoints: Tensor


def mesh_losses(found: Recovered, true: Body, frame: Frame) -> dict[str, Tensor]:
    """The terms of the loss, each with its weight: their sum is what is trained.

    Args:
        found: what the model gives.
        true: what it should.
        frame: where the joints of a mesh are.

    Returns:
        ``joints``: squared error of the model's joints and of its mesh's, around the hips; ``vertices``: absolute error
        of the three meshes; ``projection``: squared error of both kinds of joints in the image.
    """
    wanted, regressed = frame.joints(true.full), frame.joints(found.full)
    both = (found.joints, regressed)
    meshes = ((found.coarse, true.coarse), (found.middle, true.middle), (found.full, true.full))
    places = [mse_loss(frame.rooted(joints), frame.rooted(wanted)) for joints in both]
    projected = [mse_loss(project(joints, found.camera), true.keypoints) for joints in both]
    distances = [l1_loss(ours, theirs) for ours, theirs in meshes]
    return {
        "joints": JOINTS * torch.stack(places).sum(),
        "vertices": VERTICES * torch.stack(distances).sum(),
        "projection": PROJECTION * torch.stack(projected).sum(),
    }
