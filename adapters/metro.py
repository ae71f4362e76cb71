"""METRO (Lin et al. 2021): a body's joints and vertices as the tokens of a Transformer that narrows step by step.

Parameters have the names of the authors' code (microsoft/MeshTransformer), but for what that code makes and never uses
(`adapters.metro_weights`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import timm
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.functional import gelu

from harness.attention import attend
from harness.errors import InputError
from harness.site import Site
from harness.validation import model_options

STRIDE = 32
"""Pixels from one cell of a backbone's last map to the next."""
MASKED = 0.01
"""What a hidden token's input is made of."""
INIT_STD, NORM_EPS = 0.02, 1e-12
POSITIONS = 512
CAMERA_WIDTH = 250


class MetroOptions(BaseModel):
    """Shape of the model; the defaults are those of the paper.

    Dropout is what follows embeddings, attention and the feed-forward network. That of the attention weights, 0.1 in
    the authors' code, is a regularizer here and not part of the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    backbone: Literal["hrnet_w64", "hrnet_w40", "hrnet_w18_small", "resnet50", "resnet34", "resnet18", "resnet10t"] = (
        Field(default="hrnet_w64", description="timm's name of the network that reads the image")
    )
    hidden: str = Field(default="1024,256,128", description="width of each block")
    between: str = Field(default="512,128", description="width of the tokens from block to block")
    layers: int = Field(default=4, ge=1, description="of each block")
    num_heads: int = Field(default=4, ge=1)
    feedforward: int = Field(default=3072, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def widths(self, features: int) -> list[tuple[int, int, int]]:
        """Input, hidden and output width of each block, for image features of a width."""
        hidden, between = _numbers("hidden", self.hidden), _numbers("between", self.between)
        if len(between) != len(hidden) - 1:
            raise InputError(f"hidden={self.hidden} and between={self.between}: expected one less between than hidden")
        for width in hidden:
            if width % self.num_heads:
                raise InputError(f"hidden={self.hidden}: expected multiples of num_heads={self.num_heads}")
        ends = [features + 3, *between, 3]
        return list(zip(ends[:-1], hidden, ends[1:], strict=True))


class Recovered(NamedTuple):
    """A body as the model finds it, in metres around its pelvis.

    Attributes:
        camera: (B, 3): scale, shift to the right, shift down of the weak-perspective camera; see `project`.
        joints: (B, joints, 3).
        coarse: (B, vertices of the coarsest mesh, 3).
        middle: (B, vertices of the mesh between, 3).
        full: (B, vertices, 3).
    """

    camera: Tensor
    joints: Tensor
    coarse: Tensor
    middle: Tensor
    full: Tensor


class Metro(nn.Module):
    """Images to bodies.

    Attributes:
        template: joints and coarse vertices at rest (joints + vertices, 3), in metres around the pelvis; the place of
            each token. It is not of the weights: a task sets it.
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
        """Bodies in images.

        Args:
            images: (B, 3, size, size), normalised.
            shown: (B, joints + coarse vertices), 1 or True for tokens whose input the model sees, 0 for those that it
                must guess from the others (masked vertex modelling, Section 3.3 of METRO); None: it sees all.

        Raises:
            InputError: images of another size than the model was built for.
        """
        if images.shape[-2:] != (self.image_size, self.image_size):
            found, side = "×".join(map(str, images.shape[-2:])), self.image_size
            raise InputError(f"images of {found} pixels: expected {side}×{side}, which the model was built for")
        tokens: Tensor = self.conv_learn_tokens(self.backbone(images).flatten(2).mT)
        tokens = torch.cat([self.template.to(tokens.dtype).expand(len(tokens), -1, -1), tokens], dim=2)
        if shown is not None:
            tokens = torch.where(shown[..., None].bool(), tokens, MASKED)
        points = self.trans_encoder(tokens)
        joints, coarse = points[:, : self.joints], points[:, self.joints :]
        camera = self.cam_param_fc3(self.cam_param_fc2(self.cam_param_fc(coarse).squeeze(-1)))
        middle = self.upsampling(coarse.mT)
        return Recovered(camera, joints, coarse, middle.mT, self.upsampling2(middle).mT)


class Stage(nn.Module):
    """One block of METRO: a BERT encoder, then fewer channels, beside which the input is added."""

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
        """(B, T, inputs) → (B, T, outputs)."""
        out: Tensor = self.cls_head(self.bert(tokens)) + self.residual(tokens)
        return out


class Encoder(nn.Module):
    """Tokens with learnt positions through layers of BERT."""

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
        """(B, T, inputs) → (B, T, hidden)."""
        hidden: Tensor = self.dropout(self.position_embeddings.weight[: tokens.shape[1]] + self.img_embedding(tokens))
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            hidden = layer(hidden)
        return hidden


class Layer(nn.Module):
    """A layer of BERT (Devlin et al. 2019): norms stand behind the sums."""

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
        """(B, T, width) → the same."""
        hidden = self.attention["output"](self.attention["self"](hidden), hidden)
        out: Tensor = self.output(gelu(self.intermediate["dense"](hidden)), hidden)
        return out


class SelfAttention(nn.Module):
    """Multi-head self-attention of joints and vertices through `attend`. A mesh has no rows: there is no grid."""

    def __init__(self, options: MetroOptions, name: str, layer: int, depth: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.site = Site(name, "encoder-self", layer, depth, options.num_heads, width=width)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, width) → the same."""
        q, k, v = (
            part(hidden).unflatten(-1, (self.site.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        out: Tensor = attend(q, k, v, self.site, training=self.training).transpose(1, 2).flatten(2)
        return out


class Output(nn.Module):
    """Linear, dropout, the sum with what came in, norm."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, beside: Tensor) -> Tensor:
        """(B, T, inputs) and (B, T, width) → (B, T, width)."""
        out: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + beside)
        return out


def project(points: Tensor, camera: Tensor) -> Tensor:
    """Points (B, N, 3) and weak-perspective cameras (B, 3) → (B, N, 2), −1 to 1 from edge to edge of the image."""
    return camera[:, None, :1] * (points[..., :2] + camera[:, None, 1:])


def _numbers(name: str, text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0]
    if any(number < 1 for number in found):
        raise InputError(f"{name}={text}: expected whole numbers from 1 with commas between")
    return found


def build_metro(
    name: str, options: Mapping[str, Any], *, image_size: int, joints: int, vertices: tuple[int, int, int]
) -> Metro:
    """A METRO with random weights, and a template of zeros.

    Args:
        name: as registered in MODELS.
        options: fields of `MetroOptions` that differ from the default ones.
        image_size: side of the image in pixels.
        joints: that the body has.
        vertices: of the coarsest mesh, of the one between, and of the full one.

    Raises:
        InputError: an unknown or impossible option.
    """
    checked = model_options(MetroOptions, name, options)
    try:
        return Metro(checked, image_size, joints, vertices)
    except InputError as error:
        raise InputError(f"model {name}: {error}") from None
