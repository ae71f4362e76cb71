"""Test every text encoder with every head: padding, features, sites, outputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.adapters.text.text_encoders import (
    CHARACTERS,
    LINEAR_SCALE,
    FeatureEmbedding,
    LinearNgrams,
    bigram_buckets,
    character_buckets,
)
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch

SMALL: dict[str, dict[str, Any]] = {
    "text-transformer": {"layers": 2, "dim": 12, "heads": 2, "feedforward": 16, "dropout": 0.0},
    "bert-tiny": {"layers": 2, "dim": 12, "heads": 2, "feedforward": 16, "dropout": 0.0, "head_dropout": 0.0},
}
FEATURES = {"case": 5, CHARACTERS: 9}
VOCABULARY, CLASSES, MAX_LENGTH = 20, 3, 10


def build(name: str, head: str, features: dict[str, int] | None = None, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocabulary": VOCABULARY, "classes": CLASSES, "max_length": MAX_LENGTH, "features": features}
    return MODELS.get(name)(name, {**SMALL[name], **options}, head=head, **sizes)


def inputs(head: str, length: int = 6) -> tuple[Any, ...]:
    """Return two samples, the first of which ends in two tokens of padding if the length is six."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, VOCABULARY, (4, length), generator=draw)
    tokens[0, 4:] = 0
    if head == "pair":
        return (tokens.unflatten(0, (2, 2)),)
    if head == "text":
        return (tokens,)
    features = {
        "case": torch.randint(1, 5, (4, length), generator=draw) * (tokens != 0),
        CHARACTERS: torch.randint(1, 9, (4, length, 3), generator=draw) * (tokens != 0)[..., None],
    }
    return tokens, features


def more_padding(ids: Any) -> Any:
    """Append three columns of padding."""
    if isinstance(ids, dict):
        return {name: more_padding(part) if name != CHARACTERS else _pad(part, 1) for name, part in ids.items()}
    return _pad(ids, ids.ndim - 1)


def _pad(ids: Tensor, dim: int) -> Tensor:
    shape = list(ids.shape)
    shape[dim] = 3
    return torch.cat([ids, ids.new_zeros(shape)], dim=dim)


@pytest.mark.parametrize("head", ["text", "words", "pair"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("text-transformer", {"pooling": "mean"}),
        ("text-transformer", {"bigrams": 9, "convolution": 3}),
        ("bert-tiny", {}),
    ],
)
def test_padding_does_not_change_outputs_and_every_site_is_called_once(
    name: str, options: dict[str, Any], head: str
) -> None:
    model = build(name, head, FEATURES if head == "words" else None, **options)
    args = inputs(head)
    plain = model.eval()(*args)
    longer = model(*map(more_padding, args))
    if head == "words":
        assert plain.shape == (4, 6, CLASSES)
        longer = longer[:, :6]
        real = args[0] != 0
        plain, longer = plain[real], longer[real]
    torch.testing.assert_close(longer, plain)
    report = bind(model, "dropkey", ratio=0.5)
    bound_eval = model(*args)
    torch.testing.assert_close(bound_eval[args[0] != 0] if head == "words" else bound_eval, plain)
    called: Counter[str] = Counter()
    with watch(model.train(), lambda site, weights: called.update([site.name])):
        out = model(*args)
    assert called == {site.name: 1 for site in report.bound}
    assert len(called) == 2
    out.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert (out[args[0] != 0] - plain if head == "words" else out - plain).abs().max() > 1e-3


def test_padding_ids_of_features_add_nothing() -> None:
    table = FeatureEmbedding({"case": 5}, 8)
    assert table({"case": torch.zeros(1, 4, dtype=torch.long)}).abs().sum() == 0
    letters = FeatureEmbedding({CHARACTERS: 9}, 8)
    ids = torch.tensor([[[1, 2, 0], [0, 0, 0]]])
    out = letters({CHARACTERS: ids})
    assert out[0, 0].abs().sum() > 0
    assert out[0, 1].abs().sum() == 0
    torch.testing.assert_close(letters({CHARACTERS: torch.tensor([[[1, 2, 0, 0, 0]]])})[0, 0], out[0, 0])


def test_bigrams_embed_a_token_with_the_one_before_it() -> None:
    model: Any = build("text-transformer", "words", bigrams=10_000)
    ids = bigram_buckets(torch.tensor([[2, 3, 2, 3, 0], [3, 2, 3, 4, 5]]), 10_000)
    assert ids[0, 1] == ids[0, 3] == ids[1, 2]
    assert ids[0, 0] != ids[0, 2]  # the first token of a text is no bigram of two tokens
    assert ids[0, 4] == 0
    assert ids.unique().numel() == 1 + 6
    assert 0 < ids.max() < model.encoder.bigrams.num_embeddings


def test_a_linear_classifier_of_words_and_bigrams_is_added_to_the_logits() -> None:
    plain: Any = build("text-transformer", "text").eval()
    wide: Any = build("text-transformer", "text", linear_bigrams=10_000).eval()
    (tokens,) = inputs("text")
    torch.testing.assert_close(wide(tokens), plain(tokens))  # its weights start at 0
    ngrams: LinearNgrams = wide.linear
    with torch.no_grad():
        ngrams.words.weight[1:] = torch.randn(VOCABULARY - 1, CLASSES)
        ngrams.bigrams.weight[1:] = torch.randn(10_000, CLASSES)
    for row, logits in zip(tokens, wide(tokens) - plain(tokens), strict=True):
        real = row[row != 0]
        pairs = bigram_buckets(real[None], 10_000)[0]
        total = ngrams.words.weight[real].sum(dim=0) + ngrams.bigrams.weight[pairs].sum(dim=0)
        torch.testing.assert_close(logits, LINEAR_SCALE * total / len(real) ** 0.5, rtol=1e-5, atol=1e-4)


def test_equal_ngrams_of_characters_have_equal_buckets() -> None:
    # "abc" and "zabc", of which the first two n-grams have the boundary before them; a word of one character; padding
    words = torch.tensor([[1, 2, 3, 0, 0], [9, 1, 2, 3, 0], [4, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    ids = character_buckets(words[None], 2**30)[0]
    ngrams = [
        {(*boundary,)[i : i + n] for n in range(3, 7) for i in range(len(boundary) - n + 1)}
        for boundary in ([0, *(id for id in word if id), 0] for word in words[:3].tolist())
    ]
    found = [set(row[row != 0].tolist()) for row in ids]
    assert [*map(len, found)] == [*map(len, ngrams), 0] == [6, 10, 1, 0]
    assert len(found[0] & found[1]) == len(ngrams[0] & ngrams[1]) == 3
    assert not found[2] & (found[0] | found[1])
    padded = character_buckets(nn.functional.pad(words, (0, 4))[None], 2**30)[0]
    assert [set(row[row != 0].tolist()) for row in padded] == found
    assert set(character_buckets(words[None], 2).unique().tolist()) == {0, 1, 2}


def test_a_linear_classifier_of_characters_reads_the_feature_that_the_encoder_does_not() -> None:
    buckets = 1_000
    wide: Any = build("text-transformer", "text", FEATURES, linear_bigrams=9, linear_characters=buckets).eval()
    assert wide.encoder.features.tables.keys() == {"case"}
    tokens, features = inputs("words")
    plain = wide(tokens, features)
    torch.testing.assert_close(wide(tokens, {**features, CHARACTERS: features[CHARACTERS] * 0}), plain)
    with torch.no_grad():
        wide.linear.characters.weight[1:] = torch.randn(buckets, CLASSES)
    for row, logits in zip(features[CHARACTERS], wide(tokens, features) - plain, strict=True):
        ngrams = character_buckets(row[None], buckets).flatten()
        ngrams = ngrams[ngrams != 0]
        total = wide.linear.characters.weight[ngrams].sum(dim=0)
        torch.testing.assert_close(logits, LINEAR_SCALE * total / len(ngrams) ** 0.5, rtol=1e-5, atol=1e-4)
    more = wide(more_padding(tokens), {name: more_padding({name: ids})[name] for name, ids in features.items()})
    torch.testing.assert_close(more, wide(tokens, features), rtol=1e-5, atol=1e-4)


def test_options_that_do_not_fit_the_input_are_refused() -> None:
    for features, options in (({"case": 5}, {"linear_bigrams": 9}), (FEATURES, {})):
        with pytest.raises(InputError, match="linear_characters needs linear_bigrams and features=characters"):
            build("text-transformer", "text", features, linear_characters=9, **options)
    with pytest.raises(InputError, match="linear_bigrams=9: only for text classification"):
        build("text-transformer", "pair", linear_bigrams=9)
    with pytest.raises(InputError, match="vectors of 5 dimensions: expected dim=12"):
        build("bert-tiny", "text", word_dim=5)


def test_options_keep_the_other_parameters_and_the_site_of_the_embeddings() -> None:
    plain: Any = build("text-transformer", "words").eval()
    extended: Any = build("text-transformer", "text", bigrams=9, convolution=5)
    torch.testing.assert_close(plain.encoder.embedding.weight, extended.encoder.embedding.weight)
    report = bind(extended, "token-dropout", ratio=0.5)
    assert [(site.kind, site.name) for site in report.bound] == [("embedding", "encoder.dropout")]
    calls: list[Any] = []
    extended.encoder.dropout.register_forward_hook(lambda *call: calls.append(call))
    extended.train()(*inputs("text"))
    assert len(calls) == 1
    words, first = torch.tensor([[2, 3, 4, 5, 6]]), torch.tensor([[0, 3]])  # each with its first token
    torch.testing.assert_close(plain(words, None, first), plain(words)[:, [0, 3]])


@pytest.mark.parametrize("head", ["text", "words", "pair"])
@pytest.mark.parametrize("name", SMALL)
def test_features_change_the_output_of_their_text_alone(name: str, head: str) -> None:
    model: Any = build(name, head, FEATURES).eval()
    tokens, features = inputs("words")
    if head == "pair":
        tokens, features = tokens.unflatten(0, (2, 2)), {key: ids.unflatten(0, (2, 2)) for key, ids in features.items()}
    for feature, size in FEATURES.items():
        changed = features[feature].clone()
        changed[1] = changed[1] % (size - 1) + 1
        difference = (model(tokens, {**features, feature: changed}) - model(tokens, features)).abs().flatten(1).amax(1)
        assert difference[1] > 1e-5
        assert difference[0] == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert-tiny", {"heads": 5}, "heads=5 does not divide dim=12"),
        ("bert-base", {"layers": 0}, "layers=0: input should be greater"),
        ("text-transformer", {"convolution": 4}, "convolution=4: expected an odd width"),
    ],
)
def test_invalid_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MODELS.get(name)(name, {**SMALL.get(name, {}), **options}, vocabulary=9, classes=2, max_length=4)
