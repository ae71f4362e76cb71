"""Test QPIC on mmdet's DETR: sites, evaluation, checkpoints of a DETR, losses in edge cases."""

from __future__ import annotations

from pathlib import Path

import torch
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from dropbench.adapters.vision.detr import build_detr
from dropbench.adapters.vision.qpic import PairOutputs, Pairs, build_qpic, load_qpic_weights, match, pair_losses
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import through_attend
from dropbench.harness.regularizers.spec import build_regularizer

SMALL = {"depth": 18, "num_queries": 5, "encoder_layers": 2, "decoder_layers": 2, "embed_dim": 32, "num_heads": 4}


def small(**options: object) -> nn.Module:
    return build_qpic("qpic", {**SMALL, **options}, objects=80, verbs=117)


def random_outputs(queries: int = 5, images: int = 1, seed: int = 0) -> PairOutputs:
    random = torch.Generator().manual_seed(seed)

    def draw(channels: int) -> Tensor:
        return torch.randn(images, queries, channels, generator=random)

    return PairOutputs(draw(81), draw(117), draw(4).sigmoid(), draw(4).sigmoid())


def pairs(count: int, seed: int = 0) -> Pairs:
    random = torch.Generator().manual_seed(seed)
    boxes = [0.2 + 0.3 * torch.rand(count, 4, generator=random) for _ in range(2)]
    verbs = (torch.rand(count, 117, generator=random) < 0.05).float()
    return Pairs(torch.randint(80, (count,), generator=random), verbs, *boxes)


def test_the_attention_of_detr_is_bound_and_evaluation_is_unchanged() -> None:
    model = small().eval()
    images = torch.randn(2, 3, 64, 96)
    images[1, :, :, 64:] = 0
    shapes = ((64, 96), (64, 64))
    samples = [DetDataSample(metainfo={"img_shape": shape, "batch_input_shape": (64, 96)}) for shape in shapes]
    with torch.no_grad():
        plain = model(images, samples, mode="tensor")
        report = bind(model, build_regularizer("dropkey", ratio=0.3), schedule="decreasing")
        with through_attend():
            regularized = model(images, samples, mode="tensor")
    assert len(report.bound) == 6
    assert [part.shape[:3] for part in plain] == [(2, 2, 5)] * 4
    for expected, actual in zip(plain, regularized, strict=True):
        assert (expected - actual).abs().max() <= 1e-5


def test_the_heads_are_initialized_from_those_of_a_detr(tmp_path: Path) -> None:
    detr = build_detr("detr", SMALL, classes=80)
    torch.save({"state_dict": detr.state_dict()}, tmp_path / "detr.pth")
    model = small()
    verbs = model.state_dict()["bbox_head.verb_class.weight"].clone()
    assert load_qpic_weights(model, tmp_path / "detr.pth") == "weights of detr.pth, from a DETR; the verb head is new"
    states = torch.randn(1, 1, 5, 32)
    with torch.no_grad():
        classes, boxes = detr.bbox_head(states)  # type: ignore[operator]
        ours = model.bbox_head(states)  # type: ignore[operator]
    torch.testing.assert_close(ours.objects, classes)
    torch.testing.assert_close(ours.subject_boxes, boxes)
    torch.testing.assert_close(ours.object_boxes, boxes)
    assert torch.equal(model.state_dict()["bbox_head.verb_class.weight"], verbs)
    with torch.no_grad():
        improbable = small(verb_prior=0.01).bbox_head(torch.zeros(1, 1, 1, 32)).verbs.sigmoid()  # type: ignore[operator]
    torch.testing.assert_close(improbable, torch.full_like(improbable, 0.01))
    torch.save(model.state_dict(), tmp_path / "qpic.pth")
    reloaded = small()
    assert load_qpic_weights(reloaded, tmp_path / "qpic.pth") == "weights of qpic.pth"
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in reloaded.state_dict().items())


def test_images_without_pairs_and_with_more_pairs_than_queries() -> None:
    outputs = random_outputs(queries=3, images=2)
    truths = [pairs(0), pairs(5)]
    assert [len(rows) for rows, _ in match(outputs, truths)] == [0, 3]
    for kind in ("focal", "bce"):
        assert all(value.isfinite() for value in pair_losses(outputs, truths, kind).values())
        nothing = pair_losses(outputs, [pairs(0), pairs(0)], kind)
        assert all(float(nothing[name]) == 0 for name in nothing if name not in ("object", "verb"))
        assert float(nothing["object"]) > 0


def test_a_confident_and_wrong_verb_has_a_finite_loss() -> None:
    outputs = random_outputs()
    confident = outputs._replace(verbs=torch.full_like(outputs.verbs, -200).requires_grad_())
    loss = pair_losses(confident, [pairs(2, seed=1)], "focal")["verb"]
    assert loss.isfinite()
    loss.backward()
    assert confident.verbs.grad is not None
    assert confident.verbs.grad.isfinite().all()
    broken = outputs._replace(objects=outputs.objects * float("nan"))
    assert not pair_losses(broken, [pairs(2)], "focal")["object"].isfinite()
