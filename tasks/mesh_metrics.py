"""How far a recovered body is from the true one: mPVE, mPJPE and PA-mPJPE in millimetres (DropKey, Section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MILLIMETRES = 1000.0


def point_error(found: Tensor, true: Tensor) -> Tensor:
    """Mean distance of points: (B, N, 3) and (B, N, 3) in metres → (B,) in millimetres."""
    error: Tensor = (found - true).norm(dim=-1).mean(dim=-1) * MILLIMETRES
    return error


def aligned_error(found: Tensor, true: Tensor) -> Tensor:
    """As `point_error`, after each body was turned, scaled and shifted to lie on the true one as well as it can."""
    return point_error(procrustes(found, true), true)


def procrustes(points: Tensor, onto: Tensor) -> Tensor:
    """The similar copy of points (rotation, scale, shift; no mirror image) that is nearest to others by squares.

    Of points that all lie in one place, that place is moved alone; of points on a line, any of the rotations that are
    equally good is taken.

    Args:
        points: (B, N, 3).
        onto: (B, N, 3), in the same order.

    Returns:
        (B, N, 3), in double precision if that of the input is less.

    Source: Umeyama (1991), Least-squares estimation of transformation parameters between two point patterns.
    """
    dtype = torch.promote_types(points.dtype, torch.float64)
    points, onto = points.to(dtype), onto.to(dtype)
    centre = onto.mean(dim=-2, keepdim=True)
    here, there = points - points.mean(dim=-2, keepdim=True), onto - centre
    left, sizes, right = torch.linalg.svd(here.mT @ there)
    # A mirror image would be nearer: the axis that counts least is turned back.
    sign = torch.ones_like(sizes)
    sign[..., -1] = torch.where(torch.linalg.det(left @ right) < 0, -1.0, 1.0)
    spread = here.square().sum(dim=(-2, -1))
    # Points that differ by no more than their own rounding lie in one place.
    rounding = torch.finfo(dtype).eps ** 2 * points.square().sum(dim=(-2, -1))
    scale = torch.where(spread > rounding, (sizes * sign).sum(dim=-1) / spread, 0.0)
    rotation = left * sign[..., None, :] @ right
    found: Tensor = scale[..., None, None] * here @ rotation + centre
    return found


@dataclass(frozen=True, eq=False)
class Frame:
    """Where the joints of a mesh are, and what it and they are given around.

    Attributes:
        regressor: (J, V).
        pelvis: (V,): what meshes are around.
        root: numbers of the joints whose mean joints are around: the hips.
    """

    regressor: Tensor
    pelvis: Tensor
    root: tuple[int, ...]

    def to(self, like: Tensor) -> Frame:
        """The same on the device and in the dtype of another tensor."""
        return Frame(self.regressor.to(like), self.pelvis.to(like), self.root)

    def joints(self, vertices: Tensor) -> Tensor:
        """(B, V, 3) → (B, J, 3)."""
        return self.regressor @ vertices

    def rooted(self, joints: Tensor) -> Tensor:
        """(B, J, 3) around their root."""
        return joints - joints[:, list(self.root)].mean(dim=1, keepdim=True)

    def centred(self, vertices: Tensor) -> Tensor:
        """(B, V, 3) around their pelvis."""
        return vertices - (self.pelvis @ vertices)[:, None]


def body_errors(found: Tensor, true: Tensor, frame: Frame) -> dict[str, Tensor]:
    """Each metric of each body, (B,) in millimetres: of meshes (B, V, 3) in metres, and of the joints in them."""
    joints, wanted = frame.joints(found), frame.joints(true)
    return {
        "mpve": point_error(frame.centred(found), frame.centred(true)),
        "mpjpe": point_error(frame.rooted(joints), frame.rooted(wanted)),
        "pa-mpjpe": aligned_error(joints, wanted),
    }
