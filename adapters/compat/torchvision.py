"""Shim for PyPI's torchvision, a CUDA build, with a torch without CUDA, in which its operators cannot be loaded.

Without the shim, `import torchvision` fails because it registers shape rules for operators that do not exist. The shim
declares these two operators and implements `nms`, so that transforms, data sets, boxes, models and timm work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# The operators exist as long as the object that defined them.
_library: torch.library.Library | None = None


@contextmanager
def around_import(spec: ModuleSpec) -> Iterator[None]:
    """Declare `torchvision::nms` and `torchvision::qnms` if torchvision's operators cannot be loaded."""
    global _library
    if _has_operators(spec):
        yield
        return
    _library = torch.library.Library("torchvision", "FRAGMENT")
    _library.define(f"nms{_SIGNATURE}")
    _library.define(f"qnms{_SIGNATURE}")
    _library.impl("nms", nms, "CPU")
    yield
    # Patched only in the module of nms: the other operators keep torchvision's error message.
    sys.modules["torchvision.ops.boxes"]._assert_has_ops = lambda: None  # type: ignore[attr-defined]


def _has_operators(spec: ModuleSpec) -> bool:
    if torch.version.cuda is not None or torch.version.hip is not None or hasattr(torch.ops.torchvision, "nms"):
        return True  # A GPU build that does not load is a broken installation, which must not be hidden.
    extension = PathFinder.find_spec("torchvision._C", spec.submodule_search_locations)
    if extension is None or extension.origin is None:
        return False
    try:
        torch.ops.load_library(extension.origin)
    except OSError:
        return False
    return True


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Apply greedy non-maximum suppression on the CPU.

    Args:
        dets: boxes as (x1, y1, x2, y2), shape (N, 4).
        scores: shape (N,).
        iou_threshold: a box is removed if its IoU with a kept box of a higher score exceeds this.

    Returns:
        Indices of the kept boxes in descending order of score; ties keep their order. Shape (≤ N,), int64.

    Raises:
        RuntimeError: the inputs have other shapes.
    """
    if dets.ndim != 2 or dets.shape[1] != 4 or scores.shape != dets.shape[:1]:
        raise RuntimeError(f"nms: boxes (N, 4) and scores (N,), got {tuple(dets.shape)} and {tuple(scores.shape)}")
    from torchvision.ops.boxes import box_iou

    order = scores.argsort(descending=True, stable=True)
    boxes = dets[order]
    suppressed = torch.zeros(len(order), dtype=torch.bool)
    for row in range(len(order) - 1):
        if not suppressed[row]:
            suppressed[row + 1 :] |= box_iou(boxes[row : row + 1], boxes[row + 1 :])[0] > iou_threshold
    return order[~suppressed]
