"""Mesh recovery from single images with METRO (DropKey, Section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from dropbench.adapters.vision.metro import Metro, Recovered, load_metro_weights, project
from dropbench.harness.predictions.recorder import Recorder, rounded, shortest
from dropbench.harness.predictions.schema import Kind, Ratio, content_id
from dropbench.harness.trials.sample_view import BodyTokens, Overlay, Overlays, SampleView
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.meshes.bodies import BodyData
from dropbench.tasks.data.meshes.body_model import JOINTS, Points
from dropbench.tasks.detection.overlays import mesh_line
from dropbench.tasks.images.augmentation import normalize
from dropbench.tasks.meshes.metrics import MM_PER_M, Body, Frame, body_errors, mesh_losses
from dropbench.tasks.meshes.person_crop import PersonCrop, rotate_body
from dropbench.tasks.meshes.spec import MeshRecipe, MeshRecoverySpec

ERROR_DECIMALS = 6
"""Decimals of recorded errors in millimeters."""
PUBLISHED_LEVELS = (431, 1723, 6890)


class MeshRecovery(MeshRecoverySpec):
    """Mesh recovery: bodies as meshes."""

    load_weights = staticmethod(load_metro_weights)

    @classmethod
    def sizes_for(cls, recipe: MeshRecipe, classes: int) -> dict[str, Any]:
        """Return the published numbers of joints and vertices."""
        return {"image_size": recipe.image_size, "joints": len(JOINTS), "vertices": PUBLISHED_LEVELS}

    def model_sizes(self) -> dict[str, Any]:
        return {**super().model_sizes(), "joints": len(self.body.joints), "vertices": self.body.levels}

    def setup(self) -> None:
        """Read the body model and the cameras; images and meshes are read on demand."""
        self.data = self.read_data(BodyData)
        self.body = self.data.body
        self.splits = self.data.splits()
        self.mean, self.std = torch.tensor(IMAGENET_DEFAULT_MEAN), torch.tensor(IMAGENET_DEFAULT_STD)
        regressor, pelvis = (torch.from_numpy(array).float() for array in (self.body.regressor, self.body.pelvis))
        self.frame = Frame(regressor, pelvis, self.body.root)

    def build_model(self) -> nn.Module:
        model = cast(Metro, super().build_model())
        model.template.copy_(torch.from_numpy(self.body.tokens()))
        return model

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return input and targets.

        ``images`` (B, 3, size, size), normalized; ``shown`` (B, joints + coarse vertices): 0 for masked tokens; and
        the fields of `Body`.
        """
        training = split == "train"
        images, meshes, keypoints = zip(*(self._sample(split, index, training) for index in indices), strict=True)
        pixels = normalize(torch.stack([torch.from_numpy(rgb).permute(2, 0, 1) for rgb in images]), self.mean, self.std)
        if training and self.recipe.noise:
            pixels = self._add_noise(pixels)
        targets = [torch.from_numpy(np.stack(values)).float() for values in (*zip(*meshes, strict=True), keypoints)]
        masks = torch.stack([self._token_mask(training) for _ in indices])
        return {"images": pixels, "shown": masks, **Body(*targets)._asdict()}

    def _sample(self, split: Split, index: int, training: bool) -> tuple[Any, tuple[Any, Any, Any], Any]:
        """Return an image, the three meshes of its body, and the keypoints in the image."""
        frame = self.splits[split][index]
        vertices = self.data.vertices(frame)
        crop = PersonCrop.around(frame.camera.project(vertices), self.recipe.image_size)
        if training:
            crop = crop.augmented(*self._random_change())
        image = crop.apply(self.data.pixels(frame))
        keypoints = crop.to_crop(frame.camera.project(self.body.regressor @ vertices))
        full = rotate_body(vertices - self.body.pelvis @ vertices, crop.angle)
        coarse, middle = self.body.downsample(full)
        return image, (coarse, middle, full), keypoints

    def _random_change(self) -> tuple[float, float]:
        """Return a random rotation in degrees, and a random factor of the crop's side."""
        rotation, scale = torch.randn(2).tolist()
        angle = 0.0 if torch.rand(()) <= 0.6 else max(-2.0, min(2.0, rotation)) * self.recipe.rotate
        limit = self.recipe.rescale
        return angle, 1 + max(-limit, min(limit, scale * limit))

    def _add_noise(self, pixels: Tensor) -> Tensor:
        """Scale each color channel of each normalized image at random, clamped to the valid range."""
        factor = 1 + self.recipe.noise * (2 * torch.rand(len(pixels), 3, 1, 1) - 1)
        mean, std = self.mean[:, None, None], self.std[:, None, None]
        return (((pixels * std + mean) * factor).clamp(0, 1) - mean) / std

    def _token_mask(self, training: bool) -> Tensor:
        """Return a mask of joints and coarse vertices, with a random number of zeros among both in training."""
        masks = []
        for count in (len(self.body.joints), self.body.levels[0]):
            mask = torch.ones(count)
            if training:
                mask[torch.randperm(count)[: int(float(torch.rand(())) * self.recipe.hidden_tokens * count)]] = 0
            masks.append(mask)
        return torch.cat(masks)

    def num_loss_terms(self, batch: dict[str, Tensor]) -> float:
        """Return the number of images."""
        return len(batch["images"])

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Return the sum of `mesh_losses`."""
        predicted: Recovered = model(batch["images"], batch["shown"])
        true = Body(*(batch[name] for name in Body._fields))
        return torch.stack(list(mesh_losses(Recovered(*predicted), true, self._frame_on(true.full)).values())).sum()

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[dict[str, Tensor]]) -> dict[str, float]:
        """Return the mean errors of the bodies in millimeters."""

        def score(batch: dict[str, Tensor]) -> dict[str, Tensor]:
            predicted = model(batch["images"]).full.float()
            bodies = body_errors(predicted, batch["full"], self._frame_on(predicted))
            if self.recorder is not None:
                self._record(self.recorder, predicted, batch["full"], bodies)
            return {name: values.double() for name, values in bodies.items()}

        errors: dict[str, list[Tensor]] = {metric.name: [] for metric in self.metrics}
        for bodies in self.map_batches(score, batches):
            for name, values in bodies.items():
                errors[name].append(values)
        return {name: float(torch.cat(values).mean()) for name, values in errors.items()}

    def _record(self, recorder: Recorder, predicted: Tensor, true: Tensor, errors: dict[str, Tensor]) -> None:
        """Record the errors of each body in millimeters, and its true and predicted joints (J, 3) in meters."""
        columns: dict[str, Kind] = {"target": "matrix", "prediction": "matrix"}
        recorder.define({**columns, **dict.fromkeys(errors, "number")}, {name: Ratio(sum=name) for name in errors})
        joints = [shortest((self.frame.regressor @ vertices).cpu()) for vertices in (true, predicted)]
        values = [rounded(error.cpu(), ERROR_DECIMALS) for error in errors.values()]
        recorder.add(dict(zip((*columns, *errors), row, strict=True)) for row in zip(*joints, *values, strict=True))

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the file name of the image."""
        return content_id(self.splits[split][index].image)

    def _frame_on(self, like: Tensor) -> Frame:
        self.frame = self.frame.to(like)
        return self.frame

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the input image before normalization, with its subject."""
        image, _, _ = self._sample(split, index, training=False)
        return SampleView(f"subject {self.splits[split][index].subject}", image=image)

    def overlays(self, model: nn.Module, split: Split, index: int) -> Overlays:
        """Return the true mesh, projected by the true camera, and the predicted one by the predicted camera."""
        frame = self.splits[split][index]
        pixels = frame.camera.project(self.data.vertices(frame))
        true = PersonCrop.around(pixels, self.recipe.image_size).to_crop(pixels)
        body = self._predict(model, split, index)
        meshes = (true, project(body.full, body.camera)[0].double().cpu().numpy())
        return Overlays(*([Overlay("", mesh_line(self._to_pixels(points), self.body.faces))] for points in meshes))

    def body_tokens(self, model: nn.Module, split: Split, index: int) -> BodyTokens:
        """Return the joints and the vertices of the coarsest mesh."""
        body = self._predict(model, split, index)
        points = project(torch.cat([body.joints, body.coarse], dim=1), body.camera)[0].double().cpu().numpy()
        return BodyTokens(self.body.joints, self.body.tokens() * MM_PER_M, self._to_pixels(points))

    def _predict(self, model: nn.Module, split: Split, index: int) -> Recovered:
        pixels = self.batch(split, [index])["images"]
        body: Recovered = model(pixels.to(next(model.parameters()).device))
        return Recovered(*(part.float() for part in body))

    def _to_pixels(self, points: Points) -> Points:
        """Return points in −1 to 1 from edge to edge as pixels of the model's input."""
        return (points + 1) / 2 * self.recipe.image_size
