"""Pre-trained transformers models for text tasks, with their tokenizers and the library's own heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import transformers
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend
from torch import Tensor, nn

from dropbench.adapters.text.id_cache import Rows, cached_ids
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
BATCH = 1000
"""Number of texts that are encoded at once."""
DROPOUT = re.compile(r"dropout|pdrop")
"""In the names of dropout rates of the library's configurations."""


class Subwords:
    """The tokenizer of a pre-trained model; see `dropbench.tasks.text.tokenizer.Tokenizer`."""

    def __init__(self, folder: Path) -> None:
        try:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        except LOADING_ERRORS as error:
            raise loading_error(folder, error, "no tokenizer") from None
        files = ("tokenizer.json", *tokenizer.vocab_files_names.values())
        if not any((folder / name).is_file() for name in files):  # the library makes one that knows no word
            raise InputError(
                f"weights {folder}: no tokenizer: expected the model's {' or '.join(dict.fromkeys(files))}"
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token  # decoders have none; their texts do not contain the end token
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise InputError(f"weights {folder}: expected a tokenizer.json that has a padding or an end token")
        self.tokenizer = tokenizer
        self.padding: int = tokenizer.pad_token_id
        unknown = (tokenizer.mask_token_id, tokenizer.unk_token_id, self.padding)
        self.unknown: int = next(token for token in unknown if token is not None)
        self.size = len(tokenizer)
        types = "token_type_ids" in tokenizer.model_input_names
        self.inputs = ("input_ids", "token_type_ids") if types else ("input_ids",)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text with the model's special tokens."""

        def encode() -> Rows:
            return {"input_ids": [encoding.ids for encoding in self._encodings(texts)]}

        return cached_ids(self._backend(), texts, f"texts {self.tokenizer.split_special_tokens}", encode)["input_ids"]

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]], max_length: int
    ) -> tuple[dict[str, list[list[int]]], list[bool]]:
        """Encode two texts as one input, with the model's separators and, if it has them, the types of tokens.

        The longer text loses tokens until `max_length` are left, as in the library's examples for GLUE.

        Returns:
            ``input_ids`` and maybe ``token_type_ids`` of each pair, and whether the pair was truncated.
        """
        inputs = [_joined(*pair) for pair in pairs]

        def encode() -> Rows:
            rows = [self._named(encoding) for encoding in self._encodings(inputs)]
            truncated = [len(row["input_ids"]) > max_length for row in rows]
            long = [number for number, shortened in enumerate(truncated) if shortened]
            truncation = {"strategy": "longest_first", "max_length": max_length}
            for number, encoding in zip(long, self._encodings([inputs[row] for row in long], truncation), strict=True):
                rows[number] = self._named(encoding)
            return {name: [row[name] for row in rows] for name in self.inputs} | {"cut": [[each] for each in truncated]}

        own = self.tokenizer.split_special_tokens, self.tokenizer.truncation_side, self.inputs
        rows = cached_ids(self._backend(), inputs, f"pairs {max_length} {own}", encode)
        return {name: rows[name] for name in self.inputs}, [bool(cut) for [cut] in rows["cut"]]

    def encode_windows(
        self, questions: Sequence[str], contexts: Sequence[str], max_length: int, stride: int
    ) -> Iterator[tuple[list[tuple[dict[str, list[int]], list[tuple[int, int] | None]]], bool]]:
        """Encode questions with each part of their contexts, as the library's example for question answering.

        Args:
            questions: each loses its last tokens if it leaves no room for more than `stride` tokens of the context.
            contexts: the text with the answer of each question.
            max_length: maximum number of tokens of an input.
            stride: number of tokens that neighboring parts share.

        Yields:
            The inputs by name with the characters of the context, first and end, of each token (None for others), and
            whether the question was cut.
        """
        limit = max(0, max_length - stride - 1 - self.tokenizer.num_special_tokens_to_add(pair=True))
        asked, cuts = [question.lstrip() for question in questions], []
        for number, alone in enumerate(self._encodings(asked, places=True, add_special_tokens=False)):
            cuts.append(len(alone) > limit)
            if cuts[-1]:
                asked[number] = asked[number][: alone.offsets[limit][0]]
        inputs = [_joined(*pair) for pair in zip(asked, contexts, strict=True)]
        truncation = {"strategy": "only_second", "max_length": max_length, "stride": stride}
        for encoding, cut in zip(self._encodings(inputs, truncation, places=True), cuts, strict=True):
            windows = []
            for window in (encoding, *encoding.overflowing):
                places = zip(window.offsets, window.sequence_ids, strict=True)
                windows.append((self._named(window), [place if text == 1 else None for place, text in places]))
            yield windows, cut

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[int], list[int] | None]]:
        """Return the ids of each sentence, and the position of each word's first token (0: a word without tokens)."""
        inputs = [list(words) for words in sentences]

        def encode() -> Rows:
            rows: Rows = {"input_ids": [], "first": []}
            for words, encoding in zip(inputs, self._encodings(inputs, places=True, is_pretokenized=True), strict=True):
                first: dict[int, int] = {}
                for position, word in enumerate(encoding.word_ids):
                    if word is not None:
                        first.setdefault(word, position)
                rows["input_ids"].append(encoding.ids)
                rows["first"].append([first.get(word, 0) for word in range(len(words))])
            return rows

        rows = cached_ids(self._backend(), inputs, f"words {self.tokenizer.split_special_tokens}", encode)
        return [(ids, first) for ids, first in zip(rows["input_ids"], rows["first"], strict=True)]

    def tokenize(self, text: str | Sequence[str]) -> list[str]:
        """Return the tokens of a text or a sentence, special tokens included."""
        ids = self.encode([text])[0] if isinstance(text, str) else self.encode_words([text])[0][0]
        return cast(list[str], self.tokenizer.convert_ids_to_tokens(ids))

    def _backend(self) -> Backend:
        """Return the library's backend without padding and truncation, which the file of a tokenizer may bring."""
        backend: Backend = self.tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = self.tokenizer.split_special_tokens
        return backend

    def _encodings(
        self,
        inputs: Sequence[Any],
        truncation: Mapping[str, Any] | None = None,
        *,
        places: bool = False,
        **options: bool,
    ) -> Iterator[Encoding]:
        """Encode inputs in batches by the library's backend, in two thirds of the time of the tokenizer itself.

        Without `places`, encodings have no characters (`offsets`) and words (`word_ids`) of tokens.
        """
        for start in range(0, len(inputs), BATCH):
            backend = self._backend()
            encode = backend.encode_batch if places else backend.encode_batch_fast
            if truncation is not None:
                backend.enable_truncation(**truncation, direction=self.tokenizer.truncation_side)
            yield from encode(inputs[start : start + BATCH], **options)

    def _named(self, encoding: Encoding) -> dict[str, list[int]]:
        """Return the inputs of the model by name."""
        return {name: encoding.type_ids if name == "token_type_ids" else encoding.ids for name in self.inputs}

    def truncate(self, tokens: list[T], max_length: int) -> list[T]:
        """Return at most `max_length` tokens, and keep the last one (the model's end token)."""
        return tokens if len(tokens) <= max_length else [*tokens[: max_length - 1], tokens[-1]]


def _joined(first: str, second: str) -> str | tuple[str, str]:
    """Return the input for two texts; an empty second one is none, as in the library's call for a single pair."""
    return (first, second) if second else first


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
        if not hasattr(config.get_text_config(), "vocab_size"):
            raise InputError(f"weights {weights}: {config.model_type} reads no text: expected a model of texts")
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
