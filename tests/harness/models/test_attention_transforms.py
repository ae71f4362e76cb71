"""Forward-mode differentiation and `torch.func`: the derivatives of finite differences with the same dropped keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from dropbench.harness.attention.backends import backend, used_backends
from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from tests.covering import each_pair
from tests.harness.attention.attention_case import needs_compiler
from tests.harness.given import masks, qkv, site_of

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
each_unit = pytest.mark.parametrize("unit", UNITS)
OTHERS = [each for each in RESCALES if each != "detached"]
each_rescale = pytest.mark.parametrize("rescale", OTHERS)
"""`detached` has a gradient of its own (test_drop_masks and the tests of methods)."""
each_mask = pytest.mark.parametrize("mask", list(masks()))
STEP = 1e-5
jvp: Any = torch.func.jvp  # of two results, or three with `has_aux`


def inputs(mask: str) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
    """Queries, keys, values and an additive mask, a direction for each of them, and a boolean mask."""
    primals = [leaf.detach() for leaf in qkv(batch=2)]
    given = masks()[mask]
    if given is not None and given.is_floating_point():
        primals.append(given)
    generator = torch.Generator().manual_seed(4)
    tangents = [torch.randn(primal.shape, generator=generator) for primal in primals]
    return primals, tangents, given if len(primals) == 3 else None


def trained(site: Site, boolean: Tensor | None = None) -> Callable[..., Tensor]:
    """A function of q, k, v and an additive mask that drops the same keys in every call."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = boolean) -> Tensor:
        torch.manual_seed(5)
        return attend(q, k, v, site, training=True, mask=mask, causal=True)

    return call


def finite_difference(call: Callable[..., Tensor], primals: list[Tensor], tangents: list[Tensor]) -> Tensor:
    above, below = (
        call(*(primal.double() + step * tangent.double() for primal, tangent in zip(primals, tangents, strict=True)))
        for step in (STEP, -STEP)
    )
    return (above - below).nan_to_num() / (2 * STEP)


@each_pair(unit=UNITS, rescale=OTHERS, mask=[*masks()])
def test_forward_mode(unit: Unit, rescale: Rescale, mask: str) -> None:
    site = site_of(unit, rescale)
    primals, tangents, boolean = inputs(mask)
    expected = finite_difference(trained(site, boolean), primals, tangents)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(primal, tangent) for primal, tangent in zip(primals, tangents, strict=True)]
        tangent = forward_ad.unpack_dual(trained(site, boolean)(*duals)).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent.double(), expected, rtol=1e-4, atol=1e-4)
    _, tangent = jvp(trained(site, boolean), tuple(primals), tuple(tangents))
    torch.testing.assert_close(tangent.double(), expected, rtol=1e-4, atol=1e-4)


@each_pair(unit=UNITS, rescale=OTHERS, mask=[*masks()])
def test_gradients(unit: Unit, rescale: Rescale, mask: str) -> None:
    """`torch.func.grad` equals autograd, and forward over reverse mode the finite difference of gradients."""
    site = site_of(unit, rescale)
    primals, tangents, boolean = inputs(mask)

    def loss(*tensors: Tensor) -> Tensor:
        return trained(site, boolean)(*tensors).square().sum()

    arguments = tuple(range(len(primals)))
    grad = torch.func.grad(loss, arguments)
    leaves = [primal.clone().requires_grad_() for primal in primals]
    for actual, expected in zip(grad(*primals), torch.autograd.grad(loss(*leaves), leaves), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    _, products = jvp(grad, tuple(primals), tuple(tangents))
    doubles, steps = [primal.double() for primal in primals], [tangent.double() for tangent in tangents]
    above, below = (
        grad(*(primal + step * tangent for primal, tangent in zip(doubles, steps, strict=True)))
        for step in (STEP, -STEP)
    )
    for product, up, down in zip(products, above, below, strict=True):
        torch.testing.assert_close(product.double(), (up - down) / (2 * STEP), rtol=1e-3, atol=1e-3)


@each_pair(unit=UNITS, rescale=OTHERS, mask=["none", "padding", "bias and -inf"], randomness=["same", "different"])
def test_gradients_per_sample(unit: Unit, rescale: Rescale, mask: str, randomness: str) -> None:
    """`vmap` of `grad` equals a loop over the samples, with one seed for all or one for each."""
    site = site_of(unit, rescale)
    samples = torch.stack([leaf.detach() for leaf in qkv(batch=5)]).unsqueeze(2)
    given = masks()[mask]
    per_sample = None if given is None else given[:1].expand(1, -1, -1, -1).repeat(5, 1, 1, 1).unsqueeze(1)

    def loss(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return attend(q, k, v, site, training=True, mask=mask).square().sum()

    dims = 0, 0, 0, None if per_sample is None else 0
    torch.manual_seed(6)
    per_sample_grads: Any = torch.vmap(torch.func.grad(loss, (0, 1, 2)), in_dims=dims, randomness=randomness)
    grads = per_sample_grads(*samples, per_sample)
    torch.manual_seed(6)
    for index in range(5):
        if randomness == "same":
            torch.manual_seed(6)
        leaves = [tensor[index].clone().requires_grad_() for tensor in samples]
        q, k, v = leaves
        out = loss(q, k, v, None if per_sample is None else per_sample[index])
        for grad, expected in zip(grads, torch.autograd.grad(out, leaves), strict=True):
            torch.testing.assert_close(grad[index], expected, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_kernels_compute_what_is_not_transformed() -> None:
    primals, tangents, _ = inputs("none")
    call = trained(site_of("element", "inverse"))
    with backend("auto"):
        jvp(call, tuple(primals), tuple(tangents))
        assert used_backends() == ["eager"]
    with backend("auto"):
        call(*primals)
        assert used_backends() == ["cpu"]
