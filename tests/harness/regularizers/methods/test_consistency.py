"""Test the regularizers that compare passes, against slow references of the papers' formulas in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.base import Regularizer
from dropbench.harness.regularizers.methods.consistency import AttentionDropConsistency, MaskSub, RDrop
from dropbench.harness.regularizers.passes import Passes
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods.reference import check, name_of

BATCH, CLASSES, PATCHES = 5, 4, 16


def logits(number: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple((3 * torch.randn(BATCH, CLASSES, dtype=torch.float64)).requires_grad_() for _ in range(number))


def objective(regularizer: Regularizer, outputs: tuple[Tensor, ...], progress: float = 0.0) -> Tensor:
    def forward(batch: Any) -> tuple[Tensor, Tensor]:
        raise AssertionError("no further pass is needed")

    passes = Passes(forward, None, [], progress)
    passes.loss, passes.logits = torch.zeros(()), outputs
    term = regularizer.objective(passes)
    assert term is not None
    return term


def probabilities(row: list[float]) -> list[float]:
    powers = [math.exp(value - max(row)) for value in row]
    return [power / sum(powers) for power in powers]


def slow_kl(first: list[float], second: list[float]) -> tuple[float, list[float], list[float]]:
    """Return KL(P ‖ Q) of two rows of logits, and its gradients by both: p (log p/q − KL), and q − p."""
    p, q = probabilities(first), probabilities(second)
    ratios = [math.log(a / b) for a, b in zip(p, q, strict=True)]
    kl = sum(a * ratio for a, ratio in zip(p, ratios, strict=True))
    return kl, [a * (r - kl) for a, r in zip(p, ratios, strict=True)], [b - a for a, b in zip(p, q, strict=True)]


@pytest.mark.parametrize(
    ("regularizer", "forward_weight", "backward_weight"),
    # Half of R-Drop's Eq. 4: α / 2 · (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁)) / 2.
    [(RDrop(alpha=3.0), 0.75, 0.75), (AttentionDropConsistency(alpha=3.0), 3.0, 0.0)],
)
def test_the_divergence_is_that_of_a_slow_reference(
    regularizer: Regularizer, forward_weight: float, backward_weight: float
) -> None:
    first, second = logits(2)
    term = objective(regularizer, (first, second))
    term.backward()
    value, gradients = 0.0, (torch.zeros_like(first), torch.zeros_like(second))
    for row, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        kl, by_first, by_second = slow_kl(*pair)
        reverse, reverse_second, reverse_first = slow_kl(*reversed(pair))
        value += (forward_weight * kl + backward_weight * reverse) / BATCH
        for gradient, forward, backward in (
            (gradients[0], by_first, reverse_first),
            (gradients[1], by_second, reverse_second),
        ):
            parts = zip(forward, backward, strict=True)
            terms = [(forward_weight * a + backward_weight * b) / BATCH for a, b in parts]
            gradient[row] = torch.tensor(terms, dtype=torch.float64)
    check(name_of(regularizer), term, value)
    for own, gradient in zip((first, second), gradients, strict=True):
        check(name_of(regularizer), own.grad, gradient)


def test_equal_passes_have_no_divergence_and_schedules_multiply_it() -> None:
    first, second = logits(2)
    assert float(objective(RDrop(), (first, first)).detach()) == pytest.approx(0.0, abs=1e-12)
    late = build_regularizer("r-drop", alpha=5.0, over="increasing@1")
    half = objective(late, (first, second), progress=0.5)
    torch.testing.assert_close(half, objective(RDrop(alpha=2.5), (first, second)))


def vit() -> VisionTransformer:
    torch.manual_seed(1)
    model = VisionTransformer(
        img_size=16, patch_size=4, in_chans=1, num_classes=CLASSES, embed_dim=12, depth=2, num_heads=2
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().train()


def masksub_loss(model: VisionTransformer, images: Tensor, labels: Tensor, regularizer: Regularizer) -> Tensor:
    """Return the loss as the engine computes it."""

    def forward(batch: Any) -> tuple[Tensor, Tensor]:
        output = model(batch)
        return cross_entropy(output, labels), output

    passes = Passes(forward, images, bind(model, regularizer).bound, 0.0)
    regularizer.prepare(passes)
    passes.loss, output = passes.run(images)
    passes.logits = (output,)
    term = regularizer.objective(passes)
    assert term is not None
    return passes.loss + term


def kept_patches(ratio: float, patches: int = PATCHES, batch: int = BATCH) -> list[list[int]]:
    """Return the patches of each sample with the smallest of the uniform numbers that are drawn next."""
    noise: list[list[float]] = torch.rand(batch, patches).tolist()
    return [sorted(range(patches), key=row.__getitem__)[: int(patches * (1 - ratio))] for row in noise]


def slow_predict(model: VisionTransformer, images: Tensor, kept: list[list[int]]) -> Tensor:
    """Predict each image alone from a list of its patches."""
    outputs = []
    for image, numbers in zip(images, kept, strict=True):
        patches = model.patch_embed(image[None])[0]
        assert model.pos_embed is not None
        assert model.cls_token is not None
        position = model.pos_embed[0]
        rows = [model.cls_token[0, 0] + position[0], *(patches[n] + position[n + 1] for n in numbers)]
        outputs.append(model.head(model.norm(model.blocks(torch.stack(rows)[None]))[0, 0]))
    return torch.stack(outputs)


@pytest.mark.parametrize("ratio", [0.5, 0.3])
def test_masksub_is_that_of_a_slow_reference(ratio: float) -> None:
    model, images = vit(), torch.randn(BATCH, 1, 16, 16, dtype=torch.float64)
    labels = torch.arange(BATCH) % CLASSES
    torch.manual_seed(5)
    loss = masksub_loss(model, images, labels, MaskSub(ratio=ratio))
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    plain = vit()
    torch.manual_seed(5)
    kept = kept_patches(ratio)
    first = slow_predict(plain, images, [list(range(PATCHES))] * BATCH)
    second = slow_predict(plain, images, kept)
    total = torch.zeros((), dtype=torch.float64)
    for row in range(BATCH):
        targets = first[row].detach().exp() / first[row].detach().exp().sum()
        normalizer = second[row].exp().sum().log()
        total = total - (first[row, labels[row]] - first[row].exp().sum().log()) / (2 * BATCH)
        total = total - sum(targets[c] * (second[row, c] - normalizer) for c in range(CLASSES)) / (2 * BATCH)
    check("masksub", loss, total)
    for own, expected in zip(
        gradients, torch.autograd.grad(total, list(plain.parameters()), allow_unused=True), strict=True
    ):
        assert (own is None) == (expected is None)
        if own is not None:
            check("masksub", own, expected)
