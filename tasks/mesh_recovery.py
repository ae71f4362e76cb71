"""Body meshes from single images with METRO (DropKey, Section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from adapters.metro import Metro, Recovered, project
from adapters.metro_weights import load_metro_weights
from harness.models import MODELS
from harness.recipe import Recipe
from harness.task import BodyTokens, Mark, Marks, Shown, Split
from harness.trial import Trial
from tasks.augmentation import normalised
from tasks.data.bodies import BodyData
from tasks.data.body_model import JOINTS, Points
from tasks.making import check_model, read_noted
from tasks.marking import mesh_line
from tasks.mesh_losses import Body, mesh_losses
from tasks.mesh_metrics import MILLIMETRES, Frame, body_errors
from tasks.outlines.meshes import MeshRecipe, MeshRecoveryOutline
from tasks.person_crop import PersonCrop, turned
from tasks.weights import located_weights

PUBLISHED_LEVELS = (431, 1723, 6890)


class MeshRecovery(MeshRecoveryOutline):
    """Bodies as meshes."""

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`. The data, which say how many vertices there are, are not read for it."""

        def build(recipe: Recipe, classes: int) -> nn.Module:
            return _build(trial.model, cast(MeshRecipe, recipe), len(JOINTS), PUBLISHED_LEVELS)

        check_model(cls, trial, build)

    def setup(self) -> None:
        """Read the body model and the cameras; images and meshes are read when they are needed."""
        self.data = read_noted(self, BodyData)
        self.body = self.data.body
        self.splits = self.data.splits()
        self.mean, self.std = torch.tensor(IMAGENET_DEFAULT_MEAN), torch.tensor(IMAGENET_DEFAULT_STD)
        self.frame = Frame(
            torch.from_numpy(self.body.regressor).float(), torch.from_numpy(self.body.pelvis).float(), self.body.root
        )

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        model = _build(self.trial.model, self.recipe, len(self.body.joints), self.body.levels)
        model.template.copy_(torch.from_numpy(self.body.tokens()))
        weights = located_weights(self.trial)
        if weights is not None:
            self.notes.append(load_metro_weights(model, weights))
        return model

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.splits[split])

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Tensor]:
        """What the model gets, and what it should find.

        ``images`` (B, 3, size, size), normalised; ``shown`` (B, joints + coarse vertices), which tokens it sees;
        ``coarse``, ``middle`` and ``full`` (B, vertices, 3), in metres around the pelvis, and ``keypoints``
        (B, joints, 2), as in `Body`.
        """
        training = split == "train"
        found = [self._sample(split, index, training) for index in indices]
        images = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _, _ in found])
        pixels = normalised(images, self.mean, self.std)
        if training and self.recipe.noise:
            pixels = self._noisy(pixels)
        meshes = [torch.from_numpy(np.stack(part)).float() for part in zip(*(one for _, one, _ in found), strict=True)]
        return {
            "images": pixels,
            "shown": torch.stack([self._shown_tokens(training) for _ in indices]),
            "coarse": meshes[0],
            "middle": meshes[1],
            "full": meshes[2],
            "keypoints": torch.from_numpy(np.stack([places for _, _, places in found])).float(),
        }

    def _sample(self, split: Split, index: int, training: bool) -> tuple[Any, tuple[Any, Any, Any], Any]:
        """An image, the three meshes of its body, and where its joints are in it."""
        shot = self.splits[split][index]
        seen = self.data.vertices(shot)
        crop = PersonCrop.around(shot.camera.pixels(seen), self.recipe.image_size)
        if training:
            crop = crop.changed(*self._change())
        image = crop.cut(self.data.pixels(shot))
        places = crop.places(shot.camera.pixels(self.body.regressor @ seen))
        full = turned(seen - self.body.pelvis @ seen, crop.angle)
        coarse, middle = self.body.coarser(full)
        return image, (coarse, middle, full), places

    def _change(self) -> tuple[float, float]:
        """Degrees of a turn, and the factor of the crop's size."""
        turn, scale = torch.randn(2).tolist()
        angle = 0.0 if torch.rand(()) <= 0.6 else max(-2.0, min(2.0, turn)) * self.recipe.rotate
        limit = self.recipe.rescale
        return angle, 1 + max(-limit, min(limit, scale * limit))

    def _noisy(self, pixels: Tensor) -> Tensor:
        """Normalised images with each colour of each of them brighter or darker; no colour leaves its range."""
        factor = 1 + self.recipe.noise * (2 * torch.rand(len(pixels), 3, 1, 1) - 1)
        mean, std = self.mean[:, None, None], self.std[:, None, None]
        return (((pixels * std + mean) * factor).clamp(0, 1) - mean) / std

    def _shown_tokens(self, training: bool) -> Tensor:
        """Which joints and coarse vertices one sample's input has: all but a random number of either in training."""
        parts = []
        for count in (len(self.body.joints), self.body.levels[0]):
            part = torch.ones(count)
            if training:
                part[torch.randperm(count)[: int(float(torch.rand(())) * self.recipe.hidden_tokens * count)]] = 0
            parts.append(part)
        return torch.cat(parts)

    def weight(self, batch: dict[str, Tensor]) -> float:
        """The number of images."""
        return len(batch["images"])

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """See `mesh_losses`."""
        found: Recovered = model(batch["images"], batch["shown"])
        true = Body(batch["coarse"], batch["middle"], batch["full"], batch["keypoints"])
        return torch.stack(list(mesh_losses(Recovered(*found), true, self._frame_on(true.full)).values())).sum()

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[dict[str, Tensor]]) -> dict[str, float]:
        """Mean errors of the bodies in millimetres."""
        errors: dict[str, list[Tensor]] = {metric.name: [] for metric in self.metrics}
        for batch in batches:
            found = model(batch["images"]).full.float()
            for name, values in body_errors(found, batch["full"], self._frame_on(found)).items():
                errors[name].append(values.double())
        return {name: float(torch.cat(values).mean()) for name, values in errors.items()}

    def _frame_on(self, like: Tensor) -> Frame:
        self.frame = self.frame.to(like)
        return self.frame

    def shown(self, split: Split, index: int) -> Shown:
        """The image as the model gets it, but for its normalisation."""
        image, _, _ = self._sample(split, index, training=False)
        shot = self.splits[split][index]
        return Shown(f"subject {shot.subject}", image=image)

    def marks(self, model: nn.Module, split: Split, index: int) -> Marks:
        """The body's mesh, as the true camera sees it and as the found one does."""
        shot = self.splits[split][index]
        seen = shot.camera.pixels(self.data.vertices(shot))
        true = PersonCrop.around(seen, self.recipe.image_size).places(seen)
        found = self._found(model, split, index)
        meshes = (true, project(found.full, found.camera)[0].double().cpu().numpy())
        lines = [mesh_line(self._pixels(points), self.body.faces) for points in meshes]
        return Marks([Mark("", lines[0])], [Mark("", lines[1])])

    def body_tokens(self, model: nn.Module, split: Split, index: int) -> BodyTokens:
        """Joints and coarsest mesh."""
        found = self._found(model, split, index)
        points = project(torch.cat([found.joints, found.coarse], dim=1), found.camera)[0].double().cpu().numpy()
        return BodyTokens(self.body.joints, self.body.tokens() * MILLIMETRES, self._pixels(points))

    def _found(self, model: nn.Module, split: Split, index: int) -> Recovered:
        pixels = self.batch(split, [index])["images"]
        found: Recovered = model(pixels.to(next(model.parameters()).device))
        return Recovered(*(part.float() for part in found))

    def _pixels(self, points: Points) -> Points:
        """From −1 to 1 from edge to edge, to the model's input's pixels."""
        found: Points = (points + 1) / 2 * self.recipe.image_size
        return found


def _build(model: str, recipe: MeshRecipe, joints: int, vertices: tuple[int, int, int]) -> Metro:
    built = MODELS.get(model)(model, recipe.model, image_size=recipe.image_size, joints=joints, vertices=vertices)
    return cast(Metro, built)
