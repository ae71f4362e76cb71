"""transformers encoders for text tasks: BERT from a configuration, or any encoder from the user's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import transformers
from torch import Tensor, nn

from dropbench.adapters.text.options import BertOptions, HeadOptions
from dropbench.adapters.text.text_encoders import FeatureEmbedding, Head, TextEncoder, with_head
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options

T = TypeVar("T")
PADDING = 0
POSITIONS_AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer"})


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
        """Encode token ids (B, T) and ids by feature → vectors (B, T, width), and a mask of real tokens (B, T)."""
        real = tokens != self.padding
        inputs: dict[str, Tensor] = {"input_ids": tokens}
        if self.features is not None:
            inputs = {"inputs_embeds": self.embedding(tokens) + self.features(features or {})}
        return self.model(**inputs, attention_mask=real.long()).last_hidden_state, real


class Subwords:
    """The tokenizer of a pre-trained model; see `dropbench.tasks.text.tokenizer.Tokenizer`."""

    def __init__(self, folder: Path) -> None:
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"weights {folder}: no tokenizer: {_first_line(error)}") from None
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise InputError(f"weights {folder}: expected a tokenizer.json that has a padding token")
        self.tokenizer: Any = tokenizer
        self.padding: int = tokenizer.pad_token_id
        unknown = (tokenizer.mask_token_id, tokenizer.unk_token_id, self.padding)
        self.unknown: int = next(token for token in unknown if token is not None)
        self.size = len(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with the model's special tokens."""
        return cast(list[int], self.tokenizer(text, verbose=False)["input_ids"])

    def encode_words(self, words: Sequence[str]) -> tuple[list[int], list[int] | None]:
        """Return the ids of a sentence, and the position of each word's first token (0 for a word without tokens)."""
        encoding = self.tokenizer(list(words), is_split_into_words=True, verbose=False)
        first: dict[int, int] = {}
        for position, word in enumerate(encoding.word_ids()):
            if word is not None:
                first.setdefault(word, position)
        return encoding["input_ids"], [first.get(word, 0) for word in range(len(words))]

    def tokenize(self, text: str | Sequence[str]) -> list[str]:
        """Return the tokens of a text or a sentence, special tokens included."""
        ids = self.encode(text) if isinstance(text, str) else self.encode_words(text)[0]
        return cast(list[str], self.tokenizer.convert_ids_to_tokens(ids))

    def truncate(self, tokens: list[T], max_length: int) -> list[T]:
        """Return at most `max_length` tokens, and keep the last one (the model's end token)."""
        return tokens if len(tokens) <= max_length else [*tokens[: max_length - 1], tokens[-1]]


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


@with_head
def build_pretrained(
    name: str,
    options: Mapping[str, Any],
    *,
    vocabulary: int,
    max_length: int,
    features: Mapping[str, int] = {},
    weights: Path | None = None,
) -> tuple[TextEncoder, Head]:
    """Build an encoder with the weights of a folder written by `save_pretrained`; the head has random weights.

    The folder determines the number of token ids, so that `vocabulary` is ignored. `features` must be empty, because
    tokens of these models are not words. The other arguments are those of `build_bert`, with `HeadOptions` as options.

    Raises:
        InputError: the folder is missing or does not fit.
    """
    checked = model_options(HeadOptions, name, options)
    if weights is None:
        raise InputError(
            f"model {name}: expected `--weights FOLDER` with config.json, tokenizer.json and model.safetensors"
        )
    if features:
        raise InputError(f"model {name}: features={','.join(features)}: its tokens are not words: expected none")
    try:
        config = transformers.AutoConfig.from_pretrained(weights, local_files_only=True, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise InputError(f"weights {weights}: {config.model_type} is an encoder-decoder: expected an encoder")
        if torch.get_default_device().type == "meta":
            model = transformers.AutoModel.from_config(config)
        else:
            load = transformers.AutoModel.from_pretrained
            model = load(weights, local_files_only=True, trust_remote_code=False, config=config)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"weights {weights}: {_first_line(error)}") from None
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    padding = config.pad_token_id or 0
    # Families whose positions start after the padding id (such as RoBERTa) have fewer usable ones.
    positions = config.max_position_embeddings - (padding + 1 if config.model_type in POSITIONS_AFTER_PADDING else 0)
    if max_length > positions:
        raise InputError(f"model {name}: max_length={max_length}: {weights} has {positions} positions")
    return TransformersEncoder(model, {}, padding), Head(checked.pooling, checked.head_dropout)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
