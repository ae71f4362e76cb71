"""Options of the models of timm and fairseq, apart from the models: trials are made without torch.

Each is the fact `options` of its family in ``catalog.yaml``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dropbench.harness.validation import StrictModel

PER_SIDE = {
    "dim": "embed_dim",
    "feedforward": "ffn_embed_dim",
    "heads": "attention_heads",
    "normalize_before": "normalize_before",
}
"""fairseq's names of options that it has for both the encoder and the decoder."""


class VitOptions(StrictModel):
    """Options of timm's Vision Transformer, by its names; None: those of the named model."""

    patch_size: int | None = Field(default=None, ge=1)
    embed_dim: int | None = Field(default=None, ge=1)
    depth: int | None = Field(default=None, ge=1)
    num_heads: int | None = Field(default=None, ge=1)
    mlp_ratio: float | None = Field(default=None, gt=0)
    drop_rate: float | None = Field(default=None, ge=0, lt=1, description="before the classifier")
    pos_drop_rate: float | None = Field(default=None, ge=0, lt=1, description="on the embedded patches")
    attn_drop_rate: float | None = Field(default=None, ge=0, lt=1, description="on attention weights")
    proj_drop_rate: float | None = Field(default=None, ge=0, lt=1, description="on the outputs of sublayers")
    drop_path_rate: float | None = Field(default=None, ge=0, lt=1, description="of the last block")
    class_token: bool | None = None
    global_pool: str | None = None
    qkv_bias: bool | None = None
    stem: Literal["patches", "convolutional"] = "patches"


class TranslationOptions(StrictModel):
    """Options that change an architecture; None: fairseq's default."""

    encoder_layers: int | None = Field(default=None, ge=1)
    decoder_layers: int | None = Field(default=None, ge=1)
    dim: int | None = Field(default=None, ge=2, description="width of encoder and decoder")
    feedforward: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    dropout: float | None = Field(default=None, ge=0, lt=1, description="on embeddings and sublayer outputs")
    activation_dropout: float | None = Field(default=None, ge=0, lt=1, description="inside feed-forward blocks")
    normalize_before: bool | None = Field(default=None, description="pre-norm instead of post-norm")
    share: Literal["all", "decoder", "none"] = Field(
        default="all", description="shared embeddings: all: source, target and output; decoder: target and output"
    )
    positions: int = Field(default=1024, ge=2, description="maximum length of source and target, in tokens")

    def arguments(self) -> dict[str, Any]:
        """Return the options by fairseq's names."""
        changes: dict[str, Any] = {}
        for name, value in self.model_dump(exclude={"share", "positions"}, exclude_none=True).items():
            both_sides = [f"{side}_{PER_SIDE.get(name)}" for side in ("encoder", "decoder")]
            changes |= dict.fromkeys(both_sides if name in PER_SIDE else [name], value)
        return {
            **changes,
            "share_all_embeddings": self.share == "all",
            "share_decoder_input_output_embed": self.share == "decoder",
            "max_source_positions": self.positions,
            "max_target_positions": self.positions,
        }
