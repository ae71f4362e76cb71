"""METRO (Lin et al. 2021): a Transformer of decreasing width on a body's joints and vertices as tokens.

Parameters have the names of the authors' code (microsoft/MeshTransformer). Parameters that the authors' code creates
and never uses are left out (`adapters.vision.metro_weights`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import timm
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gelu

from harness.errors import InputError
from harness.models.attention import attend
from harness.regularizers.base import Site
from harness.validation import ModelOptions, model_options

STRIDE = 32
"""Stride of a backbone's last feature map, in pixels."""
MASK_VALUE = 0.01
"""Input value of masked tokens."""
INIT_STD, NORM_EPS = 0.02, 1e-12
POSITIONS = 512
CAMERA_WIDTH = 250


class MetroOptions(ModelOptions):
    """Options of the model; the defaults are those of the paper.

    `dropout` is applied to the outputs of embeddings, attention and feed-forward networks. Dropout on the attention
    weights, 0.1 in the authors' code, is a regularizer here and not part of the model.
    """

    backbone: Literal["hrnet_w64", "hrnet_w40", "hrnet_w18_small", "resnet50", "resnet34", "resnet18", "resnet10t"] = (
        Field(default="hrnet_w64", description="timm's name of the image backbone")
    )
    hidden: str = Field(default="1024,256,128", description="width of each block")
    between: str = Field(default="512,128", description="width of the tokens between blocks")
    layers: int = Field(default=4, ge=1, description="number of layers per block")
    num_heads: int = Field(default=4, ge=1)
    feedforward: int = Field(default=3072, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def widths(self, features: int) -> list[tuple[int, int, int]]:
        """Return input, hidden and output width of each block; raises InputError for widths that do not fit."""
        hidden, between = _parse_widths("hidden", self.hidden), _parse_widths("between", self.between)
        if len(between) != len(hidden) - 1:
            raise InputError(f"hidden={self.hidden} and between={self.between}: expected one width fewer in `between`")
        for width in hidden:
            if width % self.num_heads:
                raise InputError(f"hidden={self.hidden}: expected multiples of num_heads={self.num_heads}")
        ends = [features + 3, *between, 3]
        return list(zip(ends[:-1], hidden, ends[1:], strict=True))


class Recovered(NamedTuple):
    """Predicted bodies, in meters relative to the pelvis.

    Attributes:
        camera: (B, 3): scale, shift to the right, shift down of the weak-perspective camera; see `project`.
        joints: (B, joints, 3).
        coarse: (B, vertices of the coarsest mesh, 3).
        middle: (B, vertices of the mesh in between, 3).
        full: (B, vertices, 3).
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

    def forward(self, images: Tensor, shown: Tensor | None = None) -> Recovered:
        """Predict bodies in images.

        Args:
            images: (B, 3, size, size), normalized.
            shown: mask (B, joints + coarse vertices): 1 or True for tokens with their input, 0 for masked tokens
                (masked vertex modeling, Section 3.3 of METRO); None: no token is masked.

        Raises:
            InputError: the images have another size than the model was built for.
        """
        if images.shape[-2:] != (self.image_size, self.image_size):
            actual, side = "×".join(map(str, images.shape[-2:])), self.image_size
            raise InputError(f"images of {actual} pixels: the model was built for {side}×{side}")
        tokens: Tensor = self.conv_learn_tokens(self.backbone(images).flatten(2).mT)
        tokens = torch.cat([self.template.to(tokens.dtype).expand(len(tokens), -1, -1), tokens], dim=2)
        if shown is not None:
            tokens = torch.where(shown[..., None].bool(), tokens, MASK_VALUE)
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
        out: Tensor = self.cls_head(self.bert(tokens)) + self.residual(tokens)
        return out


class Encoder(nn.Module):
    """Layers of BERT on tokens with learned positions."""

    def __init__(self, options: MetroOptions, block: int, depth: int, inputs: int, hidden: int, tokens: int) -> None:
        super().__init__()
        first = block * options.layers
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(
            Layer(options, f"trans_encoder.{block}.bert.encoder.layer.{index}", first + index, depth, hidden)
            for index in range(options.layers)
        )
        self.position_embeddings = nn.Embedding(max(POSITIONS, tokens), hidden)
        self.img_embedding = nn.Linear(inputs, hidden)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T, inputs) → (B, T, hidden)."""
        hidden: Tensor = self.dropout(self.position_embeddings.weight[: tokens.shape[1]] + self.img_embedding(tokens))
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            hidden = layer(hidden)
        return hidden


class Layer(nn.Module):
    """A post-norm layer of BERT (Devlin et al. 2019)."""

    def __init__(self, options: MetroOptions, name: str, layer: int, depth: int, width: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": SelfAttention(options, f"{name}.attention.self", layer, depth, width),
                "output": Output(width, width, options.dropout),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, options.feedforward)})
        self.output = Output(options.feedforward, width, options.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (B, T, width) → (B, T, width)."""
        hidden = self.attention["output"](self.attention["self"](hidden), hidden)
        out: Tensor = self.output(gelu(self.intermediate["dense"](hidden)), hidden)
        return out


class SelfAttention(nn.Module):
    """Multi-head self-attention of joints and vertices through `attend`; a mesh has no token grid."""

    def __init__(self, options: MetroOptions, name: str, layer: int, depth: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.site = Site(name, "encoder-self", layer, depth, options.num_heads, width=width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Attend within (B, T, width) → (B, T, width)."""
        q, k, v = (
            linear(hidden).unflatten(-1, (self.site.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        out: Tensor = attend(q, k, v, self.site, training=self.training).transpose(1, 2).flatten(2)
        return out


class Output(nn.Module):
    """A linear layer with dropout, a residual sum, and layer normalization."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Map (B, T, inputs) and a residual (B, T, width) → (B, T, width)."""
        out: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + residual)
        return out


def project(points: Tensor, camera: Tensor) -> Tensor:
    """Project points (B, N, 3) by weak-perspective cameras (B, 3) → (B, N, 2), −1 to 1 from edge to edge."""
    return camera[:, None, :1] * (points[..., :2] + camera[:, None, 1:])


def _parse_widths(name: str, text: str) -> list[int]:
    try:
        widths = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        widths = [0]
    if any(width < 1 for width in widths):
        raise InputError(f"{name}={text}: expected positive integers separated by commas")
    return widths


def build_metro(
    name: str, options: Mapping[str, Any], *, image_size: int, joints: int, vertices: tuple[int, int, int]
) -> Metro:
    """Build a METRO with random weights and a template of zeros.

    Args:
        name: as registered in MODELS.
        options: fields of `MetroOptions` that differ from the defaults.
        image_size: side of the image in pixels.
        joints: number of joints.
        vertices: number of vertices of the coarsest mesh, of the one in between, and of the full one.

    Raises:
        InputError: an option is unknown or impossible.
    """
    checked = model_options(MetroOptions, name, options)
    try:
        return Metro(checked, image_size, joints, vertices)
    except InputError as error:
        raise InputError(f"model {name}: {error}") from None
