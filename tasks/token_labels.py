"""A label for every token (Jiang et al. 2021, "All Tokens Matter"), as VOLO is trained.

Each image has a label for the class token and one for each of its tokens. The tokens of a box are mixed between pairs
of images before the model sees them: the class token answers for the mixture, each token for its own image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, softmax

from harness.errors import InputError
from harness.models import MODELS
from harness.trial import Trial
from tasks.data.classification import ImageSource
from tasks.data.label_maps import LabelMaps, locate_maps, maps_fingerprint
from tasks.data.locate import Source
from tasks.outlines.images import WEIGHT, TokenLabelRecipe


def check_token_labels(trial: Trial) -> None:
    """See whether the model of a trial can be trained as its recipe says; raises InputError."""
    labels = trial.recipe.get("token_labels")
    if labels and not MODELS.entry(trial.model).facts.get("token_labels"):
        able = ", ".join(name for name in MODELS if MODELS.entry(name).facts.get("token_labels"))
        raise InputError(f"token_labels={labels}: model '{trial.model}' has no labels for its tokens: expected {able}")


def label_maps(recipe: TokenLabelRecipe, source: Source, images: ImageSource, classes: int) -> LabelMaps | None:
    """The maps of the training images; None where the recipe needs none.

    Raises:
        InputError: some are missing, or they are not those that the trial was made for.
    """
    if recipe.token_labels != "maps":
        return None
    folder = locate_maps(source)
    if maps_fingerprint(folder) != recipe.token_maps_fingerprint:
        raise InputError(f"the label maps in {folder} have changed since the trial was made")
    return LabelMaps.of(folder, images, classes)


def token_label_loss(model: nn.Module, images: Tensor, labels: Any, grid: Sequence[int], classes: int,
                     recipe: TokenLabelRecipe) -> Tensor:  # fmt: skip
    """Cross entropy of the class token, and `token_weight` times that of all tokens, with a box of tokens mixed.

    Args:
        model: `adapters.volo.Volo`.
        images: (B, C, H, W).
        labels: (B,), which all tokens of an image share; or maps (B, 2, K, rows, columns) and crops (B, 4).
        grid: rows and columns of the tokens.
        classes: how many there are.
        recipe: the weight, and the label smoothing.
    """
    from adapters.volo import random_box

    rows, columns = grid
    if isinstance(labels, Tensor):
        own = one_hot(labels, classes).float()
        tokens = own[:, None].expand(-1, rows * columns, -1)
    else:
        maps, crops = labels
        own, tokens = mapped_labels(maps, crops, (rows, columns), classes)
    box = random_box(rows, columns)
    top, left, bottom, right = box
    share = (bottom - top) * (right - left) / (rows * columns)
    found, found_tokens = model(images, box)
    rest = recipe.label_smoothing / classes
    kept = 1 - recipe.label_smoothing
    if not isinstance(labels, Tensor):
        kept += rest  # so that they add up to a little more than 1: as in the authors' code
    own, tokens = own * kept + rest, tokens * kept + rest
    loss = cross_entropy(found, torch.lerp(own, own.flip(0), share))
    weight = WEIGHT if recipe.token_weight is None else recipe.token_weight
    return loss + weight * cross_entropy(found_tokens.flatten(0, 1), tokens.flatten(0, 1))


def mapped_labels(maps: Tensor, crops: Tensor, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Labels of class token and tokens, from the scores in a crop of each map (RoI align, He et al. 2017).

    Args:
        maps: (B, 2, K, rows, columns): scores and classes; classes that are not among the K have score 0.
        crops: (B, 4): left, top, right, bottom as shares of the image.
        grid: rows and columns of the tokens.
        classes: how many there are.

    Returns:
        shares of classes: (B, classes) of the whole crop, (B, tokens, classes).
    """
    scores, numbers = maps.unbind(1)
    dense = scores.new_zeros(len(maps), classes, *maps.shape[-2:]).scatter_(1, numbers.long(), scores)
    left, top, right, bottom = crops.unbind(1)

    def aligned(rows: int, columns: int) -> Tensor:
        down = interpolation(top, bottom, rows, maps.shape[-2])
        across = interpolation(left, right, columns, maps.shape[-1])
        return torch.einsum("brh,bchw,bsw->brsc", down, dense, across).flatten(1, 2)

    return softmax(aligned(1, 1)[:, 0], dim=-1), softmax(aligned(*grid), dim=-1)


def interpolation(low: Tensor, high: Tensor, bins: int, places: int) -> Tensor:
    """What each place of a line gives to each of the equal parts of a section of it, as RoI align weighs them.

    A part is the mean of points at equal distances in it, as many as it is places long (rounded up), each interpolated
    linearly between the middles of two places. Along rows and columns in turn, this is bilinear.

    Args:
        low: (B,) where the section begins, as a share of the line.
        high: (B,) where it ends.
        bins: number of parts.
        places: number of places.

    Returns:
        (B, bins, places), of which each (bins, ·) adds up to 1.
    """
    low, size = (places * low)[:, None, None], (places * (high - low) / bins)[:, None, None]
    points = size.ceil().clamp(min=1)
    point = torch.arange(-(-places // bins), device=low.device)
    part = torch.arange(bins, device=low.device)[:, None]
    at = (low + (part + (point + 0.5) / points) * size - 0.5).clamp(0, places - 1)
    shares = (1 - (at[..., None] - torch.arange(places, device=low.device)).abs()).clamp(min=0)
    return (shares * (point < points)[..., None]).sum(2) / points
