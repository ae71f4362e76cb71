"""Test `training_loss`: what it computes, and that `regularize` names it for regularizers that need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from torch.utils.checkpoint import checkpoint

from dropbench import regularize, training_loss, unregularize
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.auxiliary_loss import MAX_PENDING
from dropbench.harness.regularizers.methods.weight_modules import MAX_USES
from dropbench.harness.regularizers.passes import Passes, loss_of_passes
from dropbench.harness.regularizers.spec import build_regularizer

WARNING = r"r-drop, alpha 1, constant changes the loss: .* by `dropbench.training_loss\(model, forward, batch\)`"

STEPS = r"changes over steps: .* call `dropbench.set_progress\(model, step / steps\)` before every step; otherwise it"


def classifier(dropout: float) -> nn.Sequential:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)).train()


def forward_of(model: nn.Module) -> Any:
    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        scores: Tensor = model(batch)[:, 0]
        return cross_entropy(scores, torch.tensor([0, 1, 2, 0])), scores

    return forward


X = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(1))


def test_regularize_names_it_for_a_regularizer_of_the_loss() -> None:
    with pytest.warns(UserWarning, match=WARNING):
        regularize(classifier(0.1), "r-drop", alpha=1.0, quiet=True)
    with pytest.warns(UserWarning, match="training_loss"):
        regularize(classifier(0.1), build_regularizer("dropkey+ad-drop"), quiet=True)


def test_it_is_the_loss_of_two_passes_and_their_divergence() -> None:
    model = classifier(0.3)
    with pytest.warns(UserWarning, match=WARNING):
        regularize(model, "r-drop", alpha=1.0, quiet=True)
    torch.manual_seed(2)
    loss = training_loss(model, forward_of(model), X)
    torch.manual_seed(2)
    (first, one), (second, two) = forward_of(model)(X), forward_of(model)(X)
    p, q = one.log_softmax(-1), two.log_softmax(-1)
    divergence = sum(kl_div(a, b, reduction="batchmean", log_target=True) for a, b in ((p, q), (q, p)))
    torch.testing.assert_close(loss, (first + second) / 2 + divergence / 4)
    unregularize(model)
    torch.manual_seed(2)
    torch.testing.assert_close(training_loss(model, forward_of(model), X), first)


def test_schedules_and_penalties_are_part_of_it() -> None:
    model = classifier(0.0)
    parameters: dict[str, Any] = {"dropkey.ratio": 0.5, "dropkey.over": "late@0.5"}
    with pytest.warns(UserWarning, match=STEPS):
        regularize(model, "dropkey+disagreement", **parameters, quiet=True)
    plain = classifier(0.0)
    loss, expected = training_loss(model, forward_of(model), X, progress=0.0), forward_of(plain)(X)[0]
    penalty = float((loss - expected).detach())
    assert penalty > 0.01
    torch.manual_seed(3)
    late = training_loss(model, forward_of(model), X, progress=0.9)
    torch.manual_seed(3)
    assert abs(float((late - forward_of(model)(X)[0]).detach()) - penalty) < 0.5
    assert not torch.allclose(late, loss)


def test_while_the_strength_is_0_there_is_one_pass() -> None:
    model, calls = classifier(0.3), 0
    with pytest.warns(UserWarning, match=STEPS), pytest.warns(UserWarning, match="changes the loss"):
        regularize(model, "r-drop", alpha=1.0, over="late@0.5", quiet=True)

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        return forward_of(model)(batch)  # type: ignore[no-any-return]

    training_loss(model, forward, X, progress=0.1)
    assert calls == 1
    training_loss(model, forward, X, progress=0.6)
    assert calls == 3


def test_penalties_of_a_pass_that_only_chooses_what_to_drop_do_not_count() -> None:
    model = classifier(0.0)
    parameters: dict[str, Any] = {"ad-drop.alternate": False, "ad-drop.ratio": 0.9}
    with pytest.warns(UserWarning, match="changes the loss"):
        regularize(model, "ad-drop+disagreement", **parameters, quiet=True)
    training_loss(model, forward_of(model), X).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_checkpointing_that_would_lose_a_penalty_is_refused() -> None:
    model = classifier(0.0)
    regularize(model, "disagreement", quiet=True)
    encoder, inputs = model[0], X.clone().requires_grad_()
    loss = training_loss(model, lambda batch: (checkpoint(encoder, batch, use_reentrant=True).sum(), batch), inputs)
    with pytest.raises(InputError, match="its penalty has no gradient: checkpoint with use_reentrant=False"):
        loss.backward()


def test_penalties_that_nothing_collects_are_an_error() -> None:
    model = classifier(0.0)
    regularize(model, "disagreement", quiet=True)
    for _ in range(MAX_PENDING):
        model(X)
    with pytest.raises(InputError, match="the penalties of 32 training forward passes were never collected: use"):
        model(X)


class Outer(nn.Module):
    """Has a regularized model as a part."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


WRAPS: dict[str, Callable[[nn.Module], Any]] = {
    "model": lambda model: model, "outer": Outer, "compiled": partial(torch.compile, backend="eager")
}  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_regularizer_of_the_loss_is_found_in_wrapped_models(wrap: str) -> None:
    inner = classifier(0.3)
    with pytest.warns(UserWarning, match=WARNING):
        regularize(inner, "r-drop", alpha=1.0, quiet=True)
    model = WRAPS[wrap](inner)
    torch.manual_seed(2)
    expected = training_loss(inner, forward_of(inner), X)
    torch.manual_seed(2)
    assert torch.equal(training_loss(model, forward_of(inner), X), expected)
    torch.manual_seed(2)
    assert not torch.allclose(forward_of(inner)(X)[0], expected)
    regularize(model, "dropkey", quiet=True)
    torch.manual_seed(2)
    loss = training_loss(model, forward_of(inner), X)
    torch.manual_seed(2)
    assert torch.equal(forward_of(inner)(X)[0], loss)


def test_regularizers_of_the_loss_of_two_parts_are_refused() -> None:
    model = nn.Sequential(classifier(0.3), classifier(0.3))
    for part in model:
        with pytest.warns(UserWarning, match=WARNING):
            regularize(part, "r-drop", alpha=1.0, quiet=True)
    with pytest.raises(InputError, match="2 parts of Sequential have regularizers that change the loss: regularize"):
        training_loss(model, forward_of(model), X)


def test_penalties_of_passes_before_the_call_do_not_count() -> None:
    def loss(before: Callable[[nn.Module], Any]) -> Tensor:
        model = classifier(0.0)
        regularize(model, "attention-entropy", weight=1.0, quiet=True)
        before(model)
        result = training_loss(model, forward_of(model), X)
        result.backward()
        return result.detach()

    expected = loss(lambda model: None)
    assert torch.equal(loss(lambda model: model(3 * X)), expected)
    assert torch.equal(loss(lambda model: forward_of(model)(3 * X)[0].backward()), expected)


@pytest.mark.parametrize("flat", [True, False])
def test_scores_of_tokens_are_compared_like_those_of_samples(flat: bool) -> None:
    model = classifier(0.3)
    with pytest.warns(UserWarning, match=WARNING):
        regularize(model, "r-drop", alpha=1.0, quiet=True)

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        scores: Tensor = model(batch)
        return scores.new_zeros(()), scores.flatten(0, 1) if flat else scores

    torch.manual_seed(2)
    loss = training_loss(model, forward, X)
    torch.manual_seed(2)
    p, q = (model(X).log_softmax(-1) for _ in range(2))
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(-1).mean()  # both directions together
    torch.testing.assert_close(loss, divergence / 4)


@pytest.mark.parametrize("name", ["r-drop", "masksub", "attentiondrop-consistency"])
def test_a_comparison_of_one_score_is_refused(name: str) -> None:
    built = build_regularizer(name)
    passes = Passes(lambda batch: (batch.sum(), batch), torch.randn(4, 1), [], None)
    with pytest.raises(InputError, match=r"compares predicted classes: expected scores .* of 2 or more, got \(4, 1\)"):
        loss_of_passes(built, passes, None)


def test_a_model_in_evaluation_mode_is_refused() -> None:
    model = classifier(0.0)
    regularize(model, "dropkey", quiet=True)
    outer = Outer(model.eval()).train()
    outer.inner.eval()
    with pytest.raises(InputError, match="Outer is in evaluation mode, in which no regularizer acts"):
        training_loss(outer, forward_of(model), X)


def test_weights_whose_penalty_nothing_collects_are_an_error() -> None:
    model = classifier(0.0)
    regularize(model, "weight-orthogonality", quiet=True)

    def train() -> None:
        for _ in range(MAX_USES + 1):
            model(X)

    with pytest.raises(InputError, match="the penalties of 256 uses in training were never collected: use"):
        train()
