"""Options of the vision models, apart from the models: trials are made without torch.

Each is the fact `options` of its family in ``catalog.yaml``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dropbench.harness.validation import StrictModel

TokenKind = Literal["transformer", "performer"]
"""Attention of T2T-ViT's T2T module."""
Widths = Annotated[str, Field(pattern=r"^([1-9]\d*(,[1-9]\d*)*)?$"), "positive integers separated by commas"]


class T2TOptions(StrictModel):
    """Options of the model; the defaults are those of T2T-ViT-14."""

    embed_dim: int = Field(default=384, ge=1)
    depth: int = Field(default=14, ge=1)
    num_heads: int = Field(default=6, ge=1)
    mlp_ratio: float = Field(default=3.0, gt=0)
    tokens: TokenKind = Field(default="transformer", description="attention of the T2T module")
    token_dim: int = Field(default=64, ge=2, description="width inside the T2T module")
    stride: Literal[16, 8, 4, 2] | None = Field(default=None, description="pixels between tokens")
    drop_rate: float = Field(default=0.0, ge=0, lt=1, description="on positions and on the outputs of sublayers")
    drop_path_rate: float = Field(default=0.0, ge=0, lt=1, description="of the last block; increases linearly from 0")


class VoloOptions(StrictModel):
    """Options of the model; the defaults are those of VOLO-D1."""

    layers: str = Field(
        default="4,4,8,2",
        pattern=r"^[1-9]\d*(,[1-9]\d*)+$",
        description="number of layers of outlook attention, and of each stage of self-attention",
    )
    embed_dim: int = Field(default=384, ge=2, description="of self-attention; half of it in outlook attention")
    num_heads: int = Field(default=12, ge=2, description="of self-attention; half of it in outlook attention")
    mlp_ratio: float = Field(default=3.0, gt=0)
    stem_dim: int = Field(default=64, ge=1, description="channels of the convolutional stem")
    stride: Literal[16, 8, 4] | None = Field(default=None, description="pixels between tokens")
    drop_rate: float = Field(default=0.0, ge=0, lt=1, description="before the classifier")
    drop_path_rate: float = Field(default=0.0, ge=0, lt=1, description="of the last block of self-attention")


class ImageEncoderOptions(StrictModel):
    """Options of a pre-trained image model; None: those of its checkpoint."""

    drop_path_rate: float | None = Field(
        default=None, ge=0, lt=1, description="of the last block; increases linearly from 0"
    )


class DetrOptions(StrictModel):
    """Options of the model; the defaults are those of mmdet's configuration.

    `dropout` is applied to the outputs of attention and feed-forward networks. Dropout on the attention weights, 0.1 in
    the configuration, is a regularizer here and not part of the model.
    """

    depth: Literal[18, 34, 50, 101] = Field(default=50, description="of the ResNet")
    stages: Literal[3, 4] = Field(default=4, description="stages of the ResNet: 3 (features of stride 16) or 4 (32)")
    channels: int = Field(default=64, ge=1, description="of the ResNet's first stage")
    frozen: bool = Field(default=True, description="whether the backbone's norms and first stage are frozen")
    num_queries: int = Field(default=100, ge=1)
    encoder_layers: int = Field(default=6, ge=1)
    decoder_layers: int = Field(default=6, ge=1)
    embed_dim: int = Field(default=256, ge=2)
    num_heads: int = Field(default=8, ge=1)
    feedforward: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)


class QpicOptions(DetrOptions):
    """Options of the model: those of DETR, and the loss of verbs."""

    verb_loss: Literal["focal", "bce"] = Field(default="focal", description="loss of the verbs")
    verb_prior: float | None = Field(
        default=None, gt=0, lt=1, description="initial probability of every verb; default: about 0.5, as published"
    )


class MetroOptions(StrictModel):
    """Options of the model; the defaults are those of the paper.

    `dropout` is applied to the outputs of embeddings, attention and feed-forward networks. Dropout on the attention
    weights, 0.1 in the authors' code, is a regularizer here and not part of the model.
    """

    backbone: Literal["hrnet_w64", "hrnet_w40", "hrnet_w18_small", "resnet50", "resnet34", "resnet18", "resnet10t"] = (
        Field(default="hrnet_w64", description="timm's name of the image backbone")
    )
    hidden: Widths = Field(default="1024,256,128", description="width of each block")
    between: Widths = Field(default="512,128", description="width of the tokens between blocks")
    layers: int = Field(default=4, ge=1, description="number of layers per block")
    num_heads: int = Field(default=4, ge=1)
    feedforward: int = Field(default=3072, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        self.widths(features=0)
        return self

    def widths(self, features: int) -> list[tuple[int, int, int]]:
        """Return input, hidden and output width of each block."""
        hidden, between = ([int(w) for w in text.split(",") if w] for text in (self.hidden, self.between))
        if len(between) != len(hidden) - 1:
            raise ValueError(f"hidden={self.hidden} and between={self.between}: expected one width fewer in `between`")
        for width in hidden:
            if width % self.num_heads:
                raise ValueError(f"hidden={self.hidden}: expected multiples of num_heads={self.num_heads}")
        ends = [features + 3, *between, 3]
        return list(zip(ends[:-1], hidden, ends[1:], strict=True))
