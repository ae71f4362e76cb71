"""Every encoder of text under every head: padding, features, sites, and what they compute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.text_features import CHARACTERS, FeatureEmbedding
from harness.binding import bind, watch
from harness.errors import InputError
from harness.models import MODELS
from harness.site import Site

SMALL: dict[str, dict[str, Any]] = {
    "text-transformer": {"layers": 2, "dim": 12, "heads": 2, "feedforward": 16, "dropout": 0.0},
    "bert-tiny": {"layers": 2, "dim": 12, "heads": 2, "feedforward": 16, "dropout": 0.0, "head_dropout": 0.0},
}
FEATURES = {"case": 5, CHARACTERS: 9}
VOCABULARY, CLASSES, LONGEST = 20, 3, 10


def build(name: str, head: str, features: dict[str, int] | None = None, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    known = {"vocabulary": VOCABULARY, "classes": CLASSES, "max_length": LONGEST, "features": features}
    return MODELS.get(name)(name, {**SMALL[name], **options}, head=head, **known)


def inputs(head: str, length: int = 6) -> tuple[Any, ...]:
    """Two samples, the first of which ends in two tokens of padding where there are six."""
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


def more_padding(given: Any) -> Any:
    """The same with three columns of padding behind."""
    if isinstance(given, dict):
        return {name: more_padding(ids) if name != CHARACTERS else _behind(ids, 1) for name, ids in given.items()}
    return _behind(given, given.ndim - 1)


def _behind(ids: Tensor, dim: int) -> Tensor:
    shape = list(ids.shape)
    shape[dim] = 3
    return torch.cat([ids, ids.new_zeros(shape)], dim=dim)


@pytest.mark.parametrize("head", ["text", "words", "pair"])
@pytest.mark.parametrize("name", SMALL)
def test_padding_changes_nothing_and_every_site_is_called_once(name: str, head: str) -> None:
    model = build(name, head, FEATURES if head == "words" else None)
    given = inputs(head)
    plain = model.eval()(*given)
    longer = model(*map(more_padding, given))
    if head == "words":
        assert plain.shape == (4, 6, CLASSES)
        longer = longer[:, :6]
        real = given[0] != 0
        plain, longer = plain[real], longer[real]
    torch.testing.assert_close(longer, plain)
    report = bind(model, "dropkey", ratio=0.5)
    bound_eval = model(*given)
    torch.testing.assert_close(bound_eval[given[0] != 0] if head == "words" else bound_eval, plain)
    called: Counter[str] = Counter()
    with watch(model.train(), lambda site, weights: called.update([site.name])):
        out = model(*given)
    assert called == {site.name: 1 for site in report.bound}
    assert len(called) == 2
    out.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert (out[given[0] != 0] - plain if head == "words" else out - plain).abs().max() > 1e-3


@pytest.mark.parametrize("name", SMALL)
def test_what_is_known_of_a_word_changes_its_tag(name: str) -> None:
    model = build(name, "words", FEATURES).eval()
    tokens, features = inputs("words")
    before = model(tokens, features)
    for feature in FEATURES:
        ids = features[feature].clone()
        ids[1, 2] = ids[1, 2] % (FEATURES[feature] - 1) + 1
        after = model(tokens, {**features, feature: ids})
        assert (after[1] - before[1]).abs().max() > 1e-4
        torch.testing.assert_close(after[2:], before[2:])


def test_a_feature_that_is_unknown_adds_nothing() -> None:
    table = FeatureEmbedding({"case": 5}, 8)
    assert table({"case": torch.zeros(1, 4, dtype=torch.long)}).abs().sum() == 0
    letters = FeatureEmbedding({CHARACTERS: 9}, 8)
    ids = torch.tensor([[[1, 2, 0], [0, 0, 0]]])
    out = letters({CHARACTERS: ids})
    assert out[0, 0].abs().sum() > 0
    assert out[0, 1].abs().sum() == 0
    torch.testing.assert_close(letters({CHARACTERS: torch.tensor([[[1, 2, 0, 0, 0]]])})[0, 0], out[0, 0])


def test_tags_are_gathered_where_words_begin() -> None:
    model = build("text-transformer", "words").eval()
    tokens = torch.tensor([[2, 3, 4, 5, 6]])
    first = torch.tensor([[0, 3]])
    torch.testing.assert_close(model(tokens, None, first), model(tokens)[:, [0, 3]])


def test_bert_is_regularised_as_attend_computes_it() -> None:
    model: Any = build("bert-tiny", "text")
    bind(model, "none")
    seen: list[tuple[Site, Tensor]] = []
    with watch(model.eval(), lambda site, weights: seen.append((site, weights))):
        model(*inputs("text"))
    assert [(site.kind, site.heads) for site, _ in seen] == [("encoder-self", 2)] * 2
    weights = seen[0][1]
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 2, 6))
    assert weights[0, :, :, 4:].abs().max() == 0


def test_vectors_of_another_width_are_projected() -> None:
    model: Any = build("text-transformer", "text", word_dim=5)
    assert model.encoder.embedding.weight.shape == (VOCABULARY, 5)
    assert model(*inputs("text")).shape == (4, CLASSES)
    with pytest.raises(InputError, match="vectors of 5 dimensions: expected dim=12"):
        build("bert-tiny", "text", word_dim=5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert-tiny", {"heads": 5}, "heads=5 does not divide dim=12"),
        ("bert-base", {"layers": 0}, "layers=0: input should be greater"),
        ("bert-tiny", {"hidden": 3}, "unknown option of model bert-tiny 'hidden'"),
        ("text-transformer", {"pooling": "first"}, "pooling"),
    ],
)
def test_impossible_options_are_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MODELS.get(name)(name, {**SMALL.get(name, {}), **options}, vocabulary=9, classes=2, max_length=4)
