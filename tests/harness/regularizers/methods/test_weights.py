"""Compare regularizers of weights with the papers' formulas in float64: values, gradients, power iteration, state."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import bind, unregularize
from dropbench.harness.models.sites import set_progress
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.harness.regularizers.methods.weight_modules import eigenvalue_spread
from dropbench.harness.regularizers.spec import build_regularizer
from tests.golden.figures import draws, picked
from tests.harness.regularizers.methods.reference import check
from tests.paths import ROOT

GOLDEN = ROOT / "tests" / "golden" / "weight_orthogonality.json"


def encoder(layers: int = 1) -> Any:
    """Return an encoder in float64; as Any, because torch does not type its modules' children."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().train()


def inputs() -> Tensor:
    return torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("gamma", ["one", "spectral-norm"])
def test_sigma_reparam_equals_its_formula_with_exact_singular_values(gamma: str) -> None:
    model = encoder()
    original = model.layers[0].linear1.weight.detach().clone()
    bind(model, "sigma-reparam", gamma=gamma)
    linear = model.layers[0].linear1
    inner = linear.parametrizations.weight
    u, s, vh = torch.linalg.svd(original)
    start = s[0] if gamma == "spectral-norm" else torch.ones((), dtype=torch.float64)
    check("sigma-reparam", linear.weight, start * original / s[0])
    upstream = torch.randn(original.shape, dtype=torch.float64)
    grad_w, grad_gamma = torch.autograd.grad(linear.weight, [inner.original, inner[0].gamma], upstream)
    # dŴ = γ (dW / σ − W dσ / σ²) with dσ = u₁ᵀ dW v₁
    inner_product = (upstream * original).sum()
    expected = start * (upstream / s[0] - inner_product / s[0] ** 2 * torch.outer(u[:, 0], vh[0]))
    check("sigma-reparam", grad_w, expected)
    check("sigma-reparam", grad_gamma, inner_product / s[0])


def test_sigma_reparam_iterates_in_training_and_acts_in_evaluation() -> None:
    model = encoder()
    bind(model, "sigma-reparam")
    linear = model.layers[0].linear1
    inner = linear.parametrizations.weight
    torch.manual_seed(3)
    with torch.no_grad():
        inner.original.copy_(torch.randn_like(inner.original))
    u, weight = inner[0].u.clone(), inner.original.detach()
    for _ in range(3):  # one step of power iteration each
        v = weight @ u / (weight @ u).norm()
        u = weight.T @ v / (weight.T @ v).norm()
        expected = inner[0].gamma * weight / (v @ weight @ u)
        check("sigma-reparam", linear.weight, expected)
        torch.testing.assert_close(inner[0].u, u, atol=1e-10, rtol=0)
    model.eval()
    assert torch.equal(linear.weight, linear.weight)
    assert torch.equal(inner[0].u, u) or torch.allclose(inner[0].u, u, atol=1e-12)
    twin = encoder()
    bind(twin, "sigma-reparam")
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(twin.eval()(inputs()), model(inputs()))


def test_mixout_equals_its_formula_and_changes_training_alone() -> None:
    model = encoder()
    bind(model, "mixout", ratio=0.4)
    linear = model.layers[0].linear1
    inner = linear.parametrizations.weight
    start = inner.original.detach().clone()
    with torch.no_grad():
        inner.original.add_(torch.randn_like(start))
    w = inner.original
    torch.manual_seed(5)
    mixed = linear.weight
    torch.manual_seed(5)
    m = (torch.rand(1, 6) >= 0.4).double().expand_as(start)
    expected = ((1 - m) * start + m * w - 0.4 * start) / 0.6
    check("mixout", mixed, expected)
    upstream = torch.randn_like(start)
    ours = torch.autograd.grad(mixed, w, upstream)[0]
    check("mixout", ours, upstream * m / 0.6)
    torch.manual_seed(0)
    mean = torch.stack([linear.weight.detach() for _ in range(3000)]).mean(0)
    assert ((mean - w).abs() < 5 * (w - start).abs() * (0.4 / 0.6 / 3000) ** 0.5 + 1e-9).all()
    assert torch.equal(model.eval().layers[0].linear1.weight, w)
    unregularize(model)
    assert torch.equal(model.layers[0].linear1.weight, w)


def test_mixout_follows_its_schedule_over_steps_and_resumes() -> None:
    model = encoder()
    bind(model, "mixout", ratio=0.4, over="late@0.5")
    inner = model.layers[0].linear1.parametrizations.weight
    with torch.no_grad():
        inner.original.add_(1.0)
    assert torch.equal(model.layers[0].linear1.weight, inner.original)
    set_progress(model, 0.5)
    torch.manual_seed(0)
    mixed = model(inputs())
    twin = encoder()
    bind(twin, "mixout", ratio=0.4, over="late@0.5")
    twin.load_state_dict(model.state_dict())
    set_progress(twin, 0.5)
    torch.manual_seed(0)
    assert torch.equal(twin(inputs()), mixed)


def test_unregularize_keeps_the_weights_that_sigma_reparam_computes() -> None:
    for gamma in ("one", "spectral-norm"):
        model = encoder(2)
        bind(model, "sigma-reparam", gamma=gamma)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(inputs()).square().mean().backward()
            optimizer.step()
        expected = model.eval()(inputs())
        assert torch.equal(unregularize(model)(inputs()), expected)
        bind(model.train(), "sigma-reparam")  # γ starts at the norm of these weights
        torch.testing.assert_close(model.eval()(inputs()), expected)


def matrices(model: Any) -> list[list[list[float]]]:
    """Return the matrices of the queries, keys and values of all layers, in this order."""
    joint = [layer.self_attn.in_proj_weight for layer in model.layers]
    return [part.tolist() for weight in joint for part in weight.chunk(3)]


def eigenvalue(matrix: list[list[float]], start: list[float]) -> float:
    """Return the Rayleigh quotient of a symmetric matrix after one step of power iteration."""

    def times(x: list[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]

    x = times(start)
    return sum(a * b for a, b in zip(times(x), x, strict=True)) / sum(a * a for a in x)


def slow_spread(weight: list[list[float]], first: list[float], second: list[float]) -> float:
    """Return the estimate of λ_max − λ_min of W Wᵀ."""
    gram = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in weight] for one in weight]
    largest = eigenvalue(gram, first)
    shifted = [[value - largest * (i == j) for j, value in enumerate(row)] for i, row in enumerate(gram)]
    smallest = eigenvalue(shifted, second) + largest
    return largest - smallest


def test_weight_orthogonality_equals_the_sum_of_its_formula() -> None:
    model, plain = encoder(2), encoder(2)
    bind(model, "weight-orthogonality", alpha=0.7)
    assert torch.equal(model(inputs()), plain(inputs()))
    torch.manual_seed(3)
    term = penalty(model, 0)
    assert term is not None
    torch.manual_seed(3)
    starts = [torch.rand(2, 6).double().tolist() for _ in range(6)]

    def slow(model: Any) -> float:
        return 0.7 * sum(slow_spread(w, *start) ** 2 for w, start in zip(matrices(model), starts, strict=True))

    check("weight-orthogonality", term, slow(plain))
    term.backward()
    gradient = model.layers[1].self_attn.parametrizations.in_proj_weight.original.grad
    weight = plain.layers[1].self_attn.in_proj_weight
    for row, column in ((0, 0), (7, 3), (17, 5)):  # by differences
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight[row, column] += step
                values.append(slow(plain))
                weight[row, column] -= step
        torch.testing.assert_close(float(gradient[row, column]), (values[0] - values[1]) / 2e-5, atol=1e-7, rtol=1e-6)
    assert all(each.grad is None for each in model.layers[1].linear1.parameters())
    assert penalty(model, 0) is None  # it is forgotten until the next forward pass
    model.eval()(inputs())
    assert penalty(model, 0) is None


def test_weight_orthogonality_grows_with_the_scale_of_weights() -> None:
    values = []
    for scale in (1.0, 2.0):
        model = encoder()
        with torch.no_grad():
            model.layers[0].self_attn.in_proj_weight.mul_(scale)
        bind(model, "weight-orthogonality")
        model(inputs())
        torch.manual_seed(3)
        values.append(torch.as_tensor(penalty(model, 0)).item())
    assert values[1] == pytest.approx(16 * values[0])


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text(encoding="utf-8")), ids=lambda case: str(case["shape"]))
def test_weight_orthogonality_equals_the_authors_code(case: dict[str, Any]) -> None:
    """See docs/parity.md."""
    draw, (rows, columns) = draws(f"weight {case['shape']}"), case["shape"]
    weight = torch.from_numpy(draw.standard_normal((rows, columns)) / columns**0.5).requires_grad_()
    first, second = (torch.from_numpy(draw.random_sample(rows)) for _ in range(2))
    loss = eigenvalue_spread(weight, first, second).square()
    assert loss.item() == pytest.approx(case["loss"], rel=1e-9)
    (gradient,) = torch.autograd.grad(loss, weight)
    assert picked(gradient) == pytest.approx(case["gradient"], rel=1e-9, abs=1e-12)


def test_only_matrices_of_queries_keys_and_values_have_the_penalty() -> None:
    report = bind(encoder(), "weight-orthogonality")
    assert [(site.name, site.projections) for site in report.bound] == [("layers.0.self_attn", 3)]
    assert {site.name for site, _ in report.skipped} >= {"layers.0.linear1", "layers.0.self_attn.out_proj"}


def test_gradients_of_two_passes_are_those_of_their_sum() -> None:
    model = encoder()
    bind(model, "sigma-reparam")
    twin = copy.deepcopy(model)
    (model(inputs()).sum() + model(-inputs()).sum()).backward()
    for sign in (1, -1):
        twin(sign * inputs()).sum().backward()
    for ours, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["sigma-reparam+mixout", "mixout+weight-orthogonality"])
def test_two_regularizers_of_weights_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="both reparametrize weights"):
        build_regularizer(name)
