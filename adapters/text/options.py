"""Options of the text models, apart from the models: trials are made without torch.

Each is the fact `options` of its family in ``catalog.yaml``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from dropbench.harness.validation import StrictModel

Pooling = Literal["mean", "max", "first"]
"""How the vectors of a text's words become one: their mean or maximum, or that of the first word."""


class TextOptions(StrictModel):
    """Options of the encoder; the source's appendix with its own values is not public."""

    layers: int = Field(default=2, ge=1)
    dim: int = Field(default=128, ge=1)
    heads: int = Field(default=4, ge=1)
    feedforward: int = Field(default=256, ge=1)
    dropout: float = Field(default=0.3, ge=0, lt=1, description="on embeddings, sublayer outputs and pooled features")
    word_dim: int | None = Field(
        default=None, ge=1, description="dimension of word embeddings if not `dim`; projected to `dim`"
    )
    pooling: Literal["mean", "max"] = "max"
    scale_embeddings: bool = Field(
        default=True, description="scale by √dim (Vaswani et al. 2017, 3.4); unscaled, positions have more weight"
    )
    positions: Literal["sinusoid", "learnt", "none"] = "sinusoid"
    embedding_std: float | None = Field(
        default=None, gt=0, description="of initial embeddings, before scaling; default: 1/√dim. A rare word keeps them"
    )
    convolution: int | None = Field(
        default=None, ge=3, description="odd width of a convolution that is added to the embeddings; default: none"
    )
    bigrams: int | None = Field(
        default=None, ge=1, description="hash buckets of the embeddings of word bigrams (Joulin et al. 2017, 2.2)"
    )
    linear_bigrams: int | None = Field(
        default=None,
        ge=1,
        description="hash buckets of the bigrams of a linear classifier beside the encoder (Cheng et al. 2016, 3)",
    )
    linear_characters: int | None = Field(
        default=None,
        ge=1,
        description="hash buckets of that classifier for n-grams of the feature `characters`, which only it reads then",
    )

    @field_validator("convolution")
    @classmethod
    def _odd(cls, width: int | None) -> int | None:
        if width is not None and width % 2 == 0:
            raise ValueError("expected an odd width")
        return width


class PretrainedOptions(StrictModel):
    """Options of a model with pre-trained weights."""

    pooling: Pooling | None = Field(
        default=None, description="a new linear head on pooled vectors; default: the head of the library"
    )
    head_dropout: float = Field(default=0.1, ge=0, lt=1, description="of a head with `pooling`, or of siamese pairs")
    pairs: Literal["joint", "siamese"] = Field(
        default="joint", description="both texts in one input, or each by itself (DropAttention 5.3)"
    )
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="every dropout rate of the checkpoint's configuration; default: its own"
    )

    def own_head(self, head: str) -> bool:
        """Return whether a new head of ours replaces that of the library; `head` is the unit that is labeled."""
        return self.pooling is not None or (head == "pair" and self.pairs == "siamese")


class BertOptions(StrictModel):
    """Options of a BERT (Devlin et al. 2019, Section 3)."""

    layers: int = Field(default=12, ge=1)
    dim: int = Field(default=768, ge=1)
    heads: int = Field(default=12, ge=1)
    feedforward: int = Field(default=3072, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    pooling: Pooling = "max"
    head_dropout: float = Field(default=0.1, ge=0, lt=1, description="on pooled vectors, or on those of each word")


class DecoderOptions(StrictModel):
    """Options of the model; the defaults are those of the source for Learned Dropout."""

    layers: int = Field(default=26, ge=1)
    dim: int = Field(default=144, ge=1)
    heads: int = Field(default=9, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on embeddings, attention and feed-forward outputs")
    evaluation: Literal["correct", "faithful"] = Field(
        default="correct", description="faithful: the attention regularizer stays active, as in the published baselines"
    )


class ExpertsOptions(StrictModel):
    """Options of the model."""

    layers: int = Field(default=26, ge=1)
    dim: int = Field(default=144, ge=1)
    heads: int = Field(default=9, ge=1)
    experts: int = Field(default=7, ge=2)
    active: int = Field(default=2, ge=1, description="number of active experts per token")
    feedforward: int = Field(default=263, ge=1, description="width of an expert (SwiGLU, with three matrices)")
    balance: float = Field(default=0.01, ge=0, description="weight of the load-balancing loss")
