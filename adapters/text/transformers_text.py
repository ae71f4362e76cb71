"""Encoders of transformers for text tasks, and BERT from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import transformers
from torch import Tensor, nn

from dropbench.adapters.text.options import BertOptions
from dropbench.adapters.text.text_encoders import FeatureEmbedding, Head, TextEncoder, with_head
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options

PADDING = 0
PUBLISHED = {
    "bert-tiny": {"layers": 2, "dim": 128, "heads": 2, "feedforward": 512},
    "bert-base": {},
}


class TransformersEncoder(nn.Module):
    """A transformers model as an encoder for `dropbench.adapters.text.text_encoders`.

    Attributes:
        width: dimension of the output vectors.
        embedding: token embedding.
    """

    def __init__(self, model: nn.Module, features: Mapping[str, int], padding: int) -> None:
        super().__init__()
        self.model = model
        self.padding = padding
        config: Any = model.config
        self.width: int = config.hidden_size
        self.features = FeatureEmbedding(features, self.embedding.embedding_dim) if features else None

    @property
    def embedding(self) -> nn.Embedding:
        """The token embedding of the model."""
        return cast(nn.Embedding, self.model.get_input_embeddings())  # type: ignore[operator]

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Encode token ids (B, T) and ids by feature → vectors (B, T, width), and a mask of real tokens (B, T).

        Without embeddings of features, these are further inputs of the model, such as ``token_type_ids``.
        """
        real = tokens != self.padding
        inputs: dict[str, Tensor] = {"input_ids": tokens}
        if self.features is None:
            inputs |= features or {}
        else:
            inputs = {"inputs_embeds": self.embedding(tokens) + self.features(features or {})}
        return self.model(**inputs, attention_mask=real.long()).last_hidden_state, real


@with_head
def build_bert(
    name: str, options: Mapping[str, Any], *, vocabulary: int, max_length: int, features: Mapping[str, int] = {}
) -> tuple[TextEncoder, Head]:
    """Build a BERT with random weights; `options` are fields of `BertOptions`, or `word_dim` if it equals `dim`.

    The other arguments and the errors are those of `dropbench.adapters.text.text_transformer.build_text_transformer`.
    """
    own = {key: value for key, value in options.items() if key != "word_dim"}
    checked = model_options(BertOptions, name, {**PUBLISHED[name], **own})
    if checked.dim % checked.heads:
        raise InputError(f"model {name}: heads={checked.heads} does not divide dim={checked.dim}")
    if options.get("word_dim", checked.dim) != checked.dim:
        raise InputError(f"model {name}: vectors of {options['word_dim']} dimensions: expected dim={checked.dim}")
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=checked.dim,
        num_hidden_layers=checked.layers,
        num_attention_heads=checked.heads,
        intermediate_size=checked.feedforward,
        hidden_dropout_prob=checked.dropout,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=max_length,
        type_vocab_size=1,
        pad_token_id=PADDING,
    )
    encoder = TransformersEncoder(transformers.BertModel(config, add_pooling_layer=False), features, PADDING)
    return encoder, Head(checked.pooling, checked.head_dropout)
