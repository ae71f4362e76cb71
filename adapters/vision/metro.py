"""METRO (Lin et al. 2021): a Transformer of decreasing width on a body's joints and vertices as tokens.

Parameters have the names of the authors' code (microsoft/MeshTransformer). Parameters that the authors' code creates
and never uses are left out (`UNUSED`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from dropbench.adapters.vision.image_size import check_image_size
from dropbench.adapters.vision.options import MetroOptions
from dropbench.adapters.weights import load_state, read_state
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.trials.optimization import BACKBONE
from dropbench.harness.validation import model_options

STRIDE = 32
"""Stride of a backbone's last feature map, in pixels."""
MASK_VALUE = 0.01
"""Input value of masked tokens."""
INIT_STD, NORM_EPS = 0.02, 1e-12
POSITIONS = 512
CAMERA_WIDTH = 250
UNUSED = re.compile(r"trans_encoder\.\d+\.bert\.(embeddings|pooler)\.|backbone\.(fc|classifier)\.")
RESNET = {"0": "conv1", "1": "bn1", **{str(stage + 3): f"layer{stage}" for stage in range(1, 5)}}
"""Names of torchvision's ResNet modules by their position, which is their name in the authors' checkpoints."""


class Recovered(NamedTuple):
    """Predicted bodies, in meters relative to the pelvis: joints and the vertices of three meshes, (B, N, 3) each.

    The weak-perspective camera (B, 3) is scale, shift to the right and shift down; see `project`.
    """

    camera: Tensor
    joints: Tensor
    coarse: Tensor
    middle: Tensor
    full: Tensor


class Metro(nn.Module):
    """METRO's model of body meshes in images.

    Attributes:
        template: joints and coarse vertices of the body at rest (joints + vertices, 3), in meters relative to the
            pelvis: the position of each token. A task sets it; it is not part of the weights.
    """

    template: Tensor

    def __init__(self, options: MetroOptions, image_size: int, joints: int, vertices: tuple[int, int, int]) -> None:
        super().__init__()
        self.image_size, self.joints = image_size, joints
        coarse, middle, full = vertices
        self.backbone = timm.create_model(options.backbone, pretrained=False, num_classes=0, global_pool="")
        features = cast(int, self.backbone.num_features)
        widths = options.widths(features)
        depth = options.layers * len(widths)
        self.trans_encoder = nn.Sequential(
            *(Stage(options, block, depth, width, joints + coarse) for block, width in enumerate(widths))
        )
        self.upsampling = nn.Linear(coarse, middle)
        self.upsampling2 = nn.Linear(middle, full)
        cells = math.ceil(image_size / STRIDE) ** 2
        self.conv_learn_tokens = nn.Conv1d(cells, joints + coarse, 1)
        self.cam_param_fc = nn.Linear(3, 1)
        self.cam_param_fc2 = nn.Linear(coarse, CAMERA_WIDTH)
        self.cam_param_fc3 = nn.Linear(CAMERA_WIDTH, 3)
        self.register_buffer("template", torch.zeros(joints + coarse, 3), persistent=False)

    def forward(self, images: Tensor, visible: Tensor | None = None) -> Recovered:
        """Predict bodies in images.

        Args:
            images: (B, 3, size, size), normalized.
            visible: mask (B, joints + coarse vertices): 1 or True for tokens with their input, 0 for masked tokens
                (masked vertex modeling, Section 3.3 of METRO); None: no token is masked.

        Raises:
            InputError: the images have another size than the model was built for.
        """
        check_image_size(images, (self.image_size, self.image_size))
        tokens: Tensor = self.conv_learn_tokens(self.backbone(images).flatten(2).mT)
        tokens = torch.cat([self.template.to(tokens.dtype).expand(len(tokens), -1, -1), tokens], dim=2)
        if visible is not None:
            tokens = torch.where(visible[..., None].bool(), tokens, MASK_VALUE)
        points = self.trans_encoder(tokens)
        joints, coarse = points[:, : self.joints], points[:, self.joints :]
        camera = self.cam_param_fc3(self.cam_param_fc2(self.cam_param_fc(coarse).squeeze(-1)))
        middle = self.upsampling(coarse.mT)
        return Recovered(camera, joints, coarse, middle.mT, self.upsampling2(middle).mT)


class Stage(nn.Module):
    """A block of METRO: a BERT encoder, a linear reduction of channels, and a projected residual."""

    def __init__(self, options: MetroOptions, block: int, depth: int, width: tuple[int, int, int], tokens: int) -> None:
        super().__init__()
        inputs, hidden, outputs = width
        self.bert = Encoder(options, block, depth, inputs, hidden, tokens)
        self.cls_head = nn.Linear(hidden, outputs)
        self.residual = nn.Linear(inputs, outputs)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T, inputs) → (B, T, outputs)."""
        return cast(Tensor, self.cls_head(self.bert(tokens)) + self.residual(tokens))


class Encoder(nn.Module):
    """Layers of BERT on tokens with learned positions."""

    def __init__(self, options: MetroOptions, block: int, depth: int, inputs: int, hidden: int, tokens: int) -> None:
        super().__init__()
        layers = []
        for index in range(options.layers):
            name = f"trans_encoder.{block}.bert.encoder.layer.{index}.attention.self"
            number = block * options.layers + index
            site = Site(name, "encoder-self", number, depth, options.num_heads, width=hidden)
            layers.append(Layer(options, site, hidden))
        self.encoder = nn.ModuleDict({"layer": nn.Sequential(*layers)})
        self.position_embeddings = nn.Embedding(max(POSITIONS, tokens), hidden)
        self.img_embedding = nn.Linear(inputs, hidden)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T, inputs) → (B, T, hidden)."""
        hidden = self.dropout(self.position_embeddings.weight[: tokens.shape[1]] + self.img_embedding(tokens))
        return cast(Tensor, self.encoder["layer"](hidden))


class Layer(nn.Module):
    """A post-norm layer of BERT (Devlin et al. 2019)."""

    def __init__(self, options: MetroOptions, site: Site, width: int) -> None:
        super().__init__()
        attention = {"self": SelfAttention(site, width), "output": Output(width, width, options.dropout)}
        self.attention = nn.ModuleDict(attention)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, options.feedforward)})
        self.output = Output(options.feedforward, width, options.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (B, T, width) → (B, T, width)."""
        hidden = self.attention["output"](self.attention["self"](hidden), hidden)
        return cast(Tensor, self.output(gelu(self.intermediate["dense"](hidden)), hidden))


class SelfAttention(nn.Module):
    """Multi-head self-attention of joints and vertices through `attend`; a mesh has no token grid."""

    def __init__(self, site: Site, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.site = site

    def forward(self, hidden: Tensor) -> Tensor:
        """Attend within (B, T, width) → (B, T, width)."""
        q, k, v = (
            linear(hidden).unflatten(-1, (self.site.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        return attend(q, k, v, self.site, training=self.training).transpose(1, 2).flatten(2)


class Output(nn.Module):
    """A linear layer with dropout, a residual sum, and layer normalization."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Map (B, T, inputs) and a residual (B, T, width) → (B, T, width)."""
        return cast(Tensor, self.LayerNorm(self.dropout(self.dense(hidden)) + residual))


def project(points: Tensor, camera: Tensor) -> Tensor:
    """Project points (B, N, 3) by weak-perspective cameras (B, 3) → (B, N, 2), −1 to 1 from edge to edge."""
    return camera[:, None, :1] * (points[..., :2] + camera[:, None, 1:])


def build_metro(
    name: str, options: Mapping[str, Any], *, image_size: int, joints: int, vertices: tuple[int, int, int]
) -> Metro:
    """Build a METRO with random weights and a template of zeros; `options` are fields of `MetroOptions`.

    `image_size` is the side of the image in pixels. `joints` is the number of joints, and `vertices` are those of the
    vertices of the coarsest mesh, of the one in between, and of the full one.
    """
    return Metro(model_options(MetroOptions, name, options), image_size, joints, vertices)


def load_metro_weights(model: Metro, path: Path) -> str:
    """Load a checkpoint into a model from `build_metro`.

    The file is a METRO published by the authors (`metro_3dpw_state_dict.bin`) or saved by DropBench, or a backbone
    published by torchvision, timm or the authors of HRNet. Arguments, result and errors are those of
    `dropbench.adapters.vision.image_weights.load_image_weights`.
    """
    state, _ = read_state(path)
    backbone = "conv1.weight" in state
    if backbone:
        state = {f"{BACKBONE}{name}": value for name, value in state.items()}
    used = {name: value for name, value in state.items() if not UNUSED.match(name)}
    load_state(model, {_own_name(name): value for name, value in used.items()}, path, BACKBONE if backbone else "")
    unused = len(state) - len(used)
    note = f"; {unused} unused tensors left out" if unused else ""
    return f"{'backbone' if backbone else 'weights'} of {path.name}{note}"


def _own_name(name: str) -> str:
    position = re.match(r"backbone\.(\d)\.", name)
    return f"{BACKBONE}{RESNET.get(position[1], position[1])}.{name[position.end() :]}" if position else name
