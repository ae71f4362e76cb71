"""transformers encoders for tasks on text: BERT from a configuration, or any encoder from the user's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from adapters.text_features import FeatureEmbedding
from adapters.text_heads import Head, Pooling, with_head
from harness.errors import InputError
from harness.validation import model_options

T = TypeVar("T")
PADDING = 0


class HeadOptions(BaseModel):
    """What stands on the encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pooling: Pooling = "first"
    head_dropout: float = Field(default=0.1, ge=0, lt=1, description="on pooled features, or on those of each word")


class BertOptions(HeadOptions):
    """Shape of a BERT (Devlin et al. 2019, Section 3)."""

    layers: int = Field(default=12, ge=1)
    dim: int = Field(default=768, ge=1)
    heads: int = Field(default=12, ge=1)
    feedforward: int = Field(default=3072, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    pooling: Pooling = "max"


PUBLISHED: dict[str, dict[str, Any]] = {
    "bert-tiny": {"layers": 2, "dim": 128, "heads": 2, "feedforward": 512},
    "bert-base": {},
}


class TransformersEncoder(nn.Module):
    """A transformers model as the encoder of `adapters.text_heads`.

    Attributes:
        width: of the vectors.
        embedding: of the tokens.
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
        """The embedding of the tokens, the model's own."""
        table: nn.Embedding = self.model.get_input_embeddings()  # type: ignore[operator]
        return table

    def forward(self, tokens: Tensor, features: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(B, T) token ids, and ids by feature → vectors (B, T, width), and which tokens are real (B, T)."""
        real = tokens != self.padding
        given: dict[str, Tensor] = {"input_ids": tokens}
        if self.features is not None:
            given = {"inputs_embeds": self.embedding(tokens) + self.features(features or {})}
        return self.model(**given, attention_mask=real.long()).last_hidden_state, real


class Subwords:
    """The tokenizer of a pre-trained model; see `tasks.words.Tokenizer`."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"weights {folder}: no tokenizer: {_first_line(error)}") from None
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise InputError(f"weights {folder}: expected a tokenizer.json that has a padding token")
        self.tokenizer: Any = tokenizer
        self.padding: int = tokenizer.pad_token_id
        hidden = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.unk_token_id
        self.unknown: int = self.padding if hidden is None else hidden
        self.size = len(tokenizer)

    def text(self, text: str) -> list[int]:
        """The ids of a text with the model's special tokens."""
        ids: list[int] = self.tokenizer(text, verbose=False)["input_ids"]
        return ids

    def words(self, words: Sequence[str]) -> tuple[list[int], list[int] | None]:
        """The ids of a sentence, and where each word's first token stands; a word without any has the first of all."""
        made = self.tokenizer(list(words), is_split_into_words=True, verbose=False)
        first: dict[int, int] = {}
        for place, word in enumerate(made.word_ids()):
            if word is not None:
                first.setdefault(word, place)
        return made["input_ids"], [first.get(word, 0) for word in range(len(words))]

    def pieces(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text or a sentence, the special ones too."""
        ids = self.text(text) if isinstance(text, str) else self.words(text)[0]
        pieces: list[str] = self.tokenizer.convert_ids_to_tokens(ids)
        return pieces

    def cut(self, tokens: list[T], longest: int) -> list[T]:
        """The first `longest` tokens, the last of which stays the last (the model's mark of an end)."""
        return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


def build_bert(
    name: str,
    options: Mapping[str, Any],
    *,
    vocabulary: int,
    classes: int,
    max_length: int,
    head: Head = "text",
    features: Mapping[str, int] | None = None,
) -> nn.Module:
    """A BERT with random weights; arguments and errors as `adapters.text_transformer.build_text_transformer`."""
    from transformers import BertConfig, BertModel

    known = {key: value for key, value in options.items() if key != "word_dim"}
    checked = model_options(BertOptions, name, {**PUBLISHED[name], **known})
    if checked.dim % checked.heads:
        raise InputError(f"model {name}: heads={checked.heads} does not divide dim={checked.dim}")
    if options.get("word_dim", checked.dim) != checked.dim:
        raise InputError(f"model {name}: vectors of {options['word_dim']} dimensions: expected dim={checked.dim}")
    config = BertConfig(
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
    encoder = TransformersEncoder(BertModel(config, add_pooling_layer=False), features or {}, PADDING)
    return with_head(encoder, head, classes, checked.pooling, checked.head_dropout)


def build_pretrained(
    name: str,
    options: Mapping[str, Any],
    *,
    vocabulary: int,
    classes: int,
    max_length: int,
    head: Head = "text",
    features: Mapping[str, int] | None = None,
    weights: Path | None = None,
) -> nn.Module:
    """An encoder with the weights of a folder that `save_pretrained` wrote; the head's are random.

    Args:
        name: as registered in MODELS.
        options: fields of `HeadOptions` that differ from the defaults.
        vocabulary: number of token ids; the folder says it better.
        classes: number of outputs.
        max_length: longest input, in tokens.
        head: what gets a label: see `adapters.text_heads`.
        features: not for these models, whose tokens are no words.
        weights: the folder.

    Returns:
        a `TextClassifier`, `Tagger` or `PairClassifier` around a `TransformersEncoder`.

    Raises:
        InputError: no folder, or one that does not fit.
    """
    from transformers import AutoConfig, AutoModel

    checked = model_options(HeadOptions, name, options)
    if weights is None:
        raise InputError(
            f"model {name}: expected --weights FOLDER, with config.json, tokenizer.json, model.safetensors"
        )
    if features:
        raise InputError(f"model {name}: features={','.join(features)}: its tokens are no words: expected none")
    try:
        config = AutoConfig.from_pretrained(weights, local_files_only=True, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise InputError(f"weights {weights}: {config.model_type} is an encoder and a decoder: expected an encoder")
        if torch.get_default_device().type == "meta":
            model = AutoModel.from_config(config)
        else:
            model = AutoModel.from_pretrained(weights, local_files_only=True, trust_remote_code=False, config=config)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"weights {weights}: {_first_line(error)}") from None
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    padding = config.pad_token_id or 0
    # Families that begin to count positions behind the padding id (RoBERTa) have as many fewer of them.
    room = config.max_position_embeddings - (padding + 1 if config.model_type in BEHIND_PADDING else 0)
    if max_length > room:
        raise InputError(f"model {name}: max_length={max_length}: {weights} has {room} positions")
    return with_head(TransformersEncoder(model, {}, padding), head, classes, checked.pooling, checked.head_dropout)


BEHIND_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer"})


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
