"""Pre-trained transformers models for text tasks, with their tokenizers and the library's own heads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import transformers
from torch import Tensor, nn

from dropbench.adapters.text.options import PretrainedOptions
from dropbench.adapters.text.text_encoders import HEADS, Head
from dropbench.adapters.text.transformers_text import TransformersEncoder
from dropbench.adapters.transformers_loading import LOADING_ERRORS, LOCAL, load_model, loading_error, read_config
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options

T = TypeVar("T")
POSITIONS_AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer"})
LIBRARY_HEADS = {
    "text": transformers.AutoModelForSequenceClassification,
    "pair": transformers.AutoModelForSequenceClassification,
    "words": transformers.AutoModelForTokenClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "span": transformers.AutoModelForQuestionAnswering,
}
"""The library's models with a head for the unit that is labeled."""
DROPOUT = re.compile(r"dropout|pdrop")
"""In the names of dropout rates of the library's configurations."""


class Subwords:
    """The tokenizer of a pre-trained model; see `dropbench.tasks.text.tokenizer.Tokenizer`."""

    def __init__(self, folder: Path) -> None:
        try:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        except LOADING_ERRORS as error:
            raise loading_error(folder, error, "no tokenizer") from None
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token  # decoders have none; their texts do not contain the end token
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise InputError(f"weights {folder}: expected a tokenizer.json that has a padding or an end token")
        self.tokenizer = tokenizer
        self.padding: int = tokenizer.pad_token_id
        unknown = (tokenizer.mask_token_id, tokenizer.unk_token_id, self.padding)
        self.unknown: int = next(token for token in unknown if token is not None)
        self.size = len(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with the model's special tokens."""
        return cast(list[int], self.tokenizer(text, verbose=False)["input_ids"])

    def encode_pair(self, first: str, second: str, max_length: int) -> tuple[dict[str, list[int]], bool]:
        """Encode two texts as one input, with the model's separators and, if it has them, the types of tokens.

        The longer text loses tokens until `max_length` are left, as in the library's examples for GLUE.

        Returns:
            ``input_ids``, maybe ``token_type_ids``, and whether the pair was truncated.
        """
        whole = self.tokenizer(first, second, verbose=False, return_attention_mask=False)
        if len(whole["input_ids"]) <= max_length:
            return dict(whole), False
        options = {"truncation": "longest_first", "max_length": max_length, "return_attention_mask": False}
        return dict(self.tokenizer(first, second, **options)), True

    def encode_windows(
        self, question: str, context: str, max_length: int, stride: int
    ) -> tuple[list[tuple[dict[str, list[int]], list[tuple[int, int] | None]]], bool]:
        """Encode a question with each part of a context, as the library's example for question answering.

        Args:
            question: loses its last tokens if it leaves no room for more than `stride` tokens of the context.
            context: the text with the answer.
            max_length: maximum number of tokens of an input.
            stride: number of tokens that neighboring parts share.

        Returns:
            The inputs by name with the characters of the context, first and end, of each token (None for others), and
            whether the question was cut.
        """
        tokenizer, question = self.tokenizer, question.lstrip()
        limit = max(0, max_length - stride - 1 - tokenizer.num_special_tokens_to_add(pair=True))
        places = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
        if cut := len(places) > limit:
            question = question[: places[limit][0]]
        encoding = tokenizer(
            question, context, truncation="only_second", max_length=max_length, stride=stride, verbose=False,
            return_overflowing_tokens=True, return_offsets_mapping=True, return_attention_mask=False,
        )  # fmt: skip
        names = [name for name in encoding if name not in ("offset_mapping", "overflow_to_sample_mapping")]
        windows = []
        for number, offsets in enumerate(encoding["offset_mapping"]):
            texts = encoding.sequence_ids(number)
            span = [place if text == 1 else None for place, text in zip(offsets, texts, strict=True)]
            windows.append(({name: encoding[name][number] for name in names}, span))
        return windows, cut

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


class LibraryModel(nn.Module):
    """A transformers model with the library's head, called as the models of `text_encoders` are.

    Attributes:
        model: the model of the library.
        new: names of the parameters that its checkpoint does not have, which begin with random weights.
    """

    def __init__(self, model: nn.Module, padding: int, new: Sequence[str] = ()) -> None:
        super().__init__()
        self.model, self.padding, self.new = model, padding, tuple(new)

    def forward(
        self, tokens: Tensor, features: Mapping[str, Tensor] | None = None, first: Tensor | None = None
    ) -> Tensor:
        """Score texts or words.

        Args:
            tokens: token ids (B, T).
            features: further inputs of the model by name, such as ``token_type_ids``, of the same shape.
            first: for tagging, the position of each word's first token (B, W).

        Returns:
            Logits (B, classes), or (B, W, classes) of words; (B, choices) of tokens (B, choices, T); with a head for
            answers those of their starts and ends (B, T, 2).
        """
        mask = (tokens != self.padding).long()
        output = self.model(input_ids=tokens, attention_mask=mask, **(features or {}))
        spans = "start_logits" in output
        logits: Tensor = torch.stack([output.start_logits, output.end_logits], -1) if spans else output.logits
        return logits if first is None else logits.gather(1, first[..., None].expand(-1, -1, logits.shape[-1]))


class ChoicesByText(LibraryModel):
    """A transformers model for texts with one output, which scores each choice."""

    def forward(
        self, tokens: Tensor, features: Mapping[str, Tensor] | None = None, first: Tensor | None = None
    ) -> Tensor:
        """Score choices (B, choices, T) → logits (B, choices)."""
        flat = {name: ids.flatten(0, 1) for name, ids in (features or {}).items()}
        return super().forward(tokens.flatten(0, 1), flat, first).view(tokens.shape[:2])


def build_pretrained(
    name: str,
    options: Mapping[str, Any],
    *,
    vocabulary: int,
    max_length: int,
    classes: int,
    head: str = "text",
    features: Mapping[str, int] = {},
    weights: Path | None = None,
) -> nn.Module:
    """Build a model with the weights of a folder written by `save_pretrained`, its head included if it has that.

    Args:
        name: the registered name.
        options: fields of `PretrainedOptions`.
        vocabulary: ignored, since the folder determines the number of token ids.
        max_length: maximum number of tokens.
        classes: number of outputs of the head.
        head: a key of `LIBRARY_HEADS`.
        features: must be empty, because tokens of these models are not words.
        weights: the folder.

    Raises:
        InputError: the folder is missing or does not fit.
    """
    checked = model_options(PretrainedOptions, name, options)
    if weights is None:
        raise InputError(f"model {name}: expected `--weights` with a folder of transformers, or `hf:ORGANISATION/NAME`")
    if features:
        raise InputError(f"model {name}: features={','.join(features)}: its tokens are not words: expected none")
    own_head = checked.own_head(head)
    config = read_config(weights)
    try:
        if config.is_encoder_decoder:
            raise InputError(f"weights {weights}: {config.model_type} is an encoder-decoder: expected an encoder")
        if config.pad_token_id is None:
            config.pad_token_id = Subwords(weights).padding
        if checked.dropout is not None:
            rates = (key for key, value in config.to_dict().items() if DROPOUT.search(key) and isinstance(value, float))
            config.update(dict.fromkeys(rates, checked.dropout))
        kind = transformers.AutoModel if own_head else LIBRARY_HEADS[head]
        by_text = head == "choice" and type(config) not in transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING
        if by_text and not own_head:  # such as decoders: a classifier with one output scores each choice
            kind = transformers.AutoModelForSequenceClassification
        if not own_head:
            config.num_labels = 1 if head == "choice" else classes
        model, new = load_model(weights, config, kind)
    except LOADING_ERRORS as error:
        raise loading_error(weights, error) from None
    padding = config.pad_token_id
    # Families whose positions start after the padding id (such as RoBERTa) have fewer usable ones.
    positions = getattr(config, "max_position_embeddings", None) or max_length
    positions -= padding + 1 if config.model_type in POSITIONS_AFTER_PADDING else 0
    if max_length > positions:
        raise InputError(f"model {name}: max_length={max_length}: {weights} has {positions} positions")
    if not own_head:
        return (ChoicesByText if by_text else LibraryModel)(model, padding, new)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    one_text = "text" if head == "pair" and checked.pairs == "joint" else head
    options_of_head = Head(checked.pooling or "first", checked.head_dropout)
    return HEADS[one_text](TransformersEncoder(model, {}, padding), classes, options_of_head)
