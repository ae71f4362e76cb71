"""QPIC on mmdet's DETR: sites, evaluation unchanged by our attention, weights of a DETR, losses of odd cases."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from adapters.detr import build_detr
from adapters.qpic import Found, Pairs, build_qpic, load_qpic_weights, match, pair_losses
from harness.align import through_attend
from harness.binding import bind
from harness.errors import InputError
from harness.regularizers.spec import build_regularizer

SMALL = {"depth": 18, "num_queries": 5, "encoder_layers": 2, "decoder_layers": 2, "embed_dim": 32, "num_heads": 4}


def small(**options: object) -> nn.Module:
    return build_qpic("qpic", {**SMALL, **options}, objects=80, verbs=117)


def found(queries: int = 5, images: int = 1, seed: int = 0) -> Found:
    random = torch.Generator().manual_seed(seed)

    def draw(channels: int) -> Tensor:
        return torch.randn(images, queries, channels, generator=random)

    return Found(draw(81), draw(117), draw(4).sigmoid(), draw(4).sigmoid())


def pairs(count: int, seed: int = 0) -> Pairs:
    random = torch.Generator().manual_seed(seed)
    boxes = [0.2 + 0.3 * torch.rand(count, 4, generator=random) for _ in range(2)]
    verbs = (torch.rand(count, 117, generator=random) < 0.05).float()
    return Pairs(torch.randint(80, (count,), generator=random), verbs, *boxes)


def test_attention_is_detrs_and_evaluation_does_not_change() -> None:
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
    for one, other in zip(plain, regularized, strict=True):
        assert (one - other).abs().max() <= 1e-5


def test_the_whole_model_has_18_sites() -> None:
    with torch.device("meta"):
        model = build_qpic("qpic", {"depth": 101}, objects=80, verbs=117)
    report = bind(model, build_regularizer("dropkey", ratio=0.3))
    kinds = [site.kind for site in report.bound]
    assert [kinds.count(kind) for kind in ("encoder-self", "decoder-self", "cross")] == [6, 6, 6]


def test_the_heads_begin_with_those_of_a_detr(tmp_path: Path) -> None:
    detr = build_detr("detr", SMALL, classes=80)
    torch.save({"state_dict": detr.state_dict()}, tmp_path / "detr.pth")
    model = small()
    verbs = model.state_dict()["bbox_head.verb_class.weight"].clone()
    assert load_qpic_weights(model, tmp_path / "detr.pth") == "weights of detr.pth, a DETR's; the verbs are new"
    states = torch.randn(1, 1, 5, 32)
    with torch.no_grad():
        classes, boxes = detr.bbox_head(states)  # type: ignore[operator]
        ours = model.bbox_head(states)  # type: ignore[operator]
    torch.testing.assert_close(ours.objects, classes)
    torch.testing.assert_close(ours.subject_boxes, boxes)
    torch.testing.assert_close(ours.object_boxes, boxes)
    assert torch.equal(model.state_dict()["bbox_head.verb_class.weight"], verbs)
    torch.save(model.state_dict(), tmp_path / "qpic.pth")
    other = small()
    assert load_qpic_weights(other, tmp_path / "qpic.pth") == "weights of qpic.pth"
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())


def test_another_detrs_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    torch.save(build_detr("detr", SMALL, classes=4).state_dict(), tmp_path / "detr.pth")
    told = r"bbox_head.object_class.weight has shape \(5, 32\): expected the model's \(81, 32\)$"
    with pytest.raises(InputError, match=told) as error:
        load_qpic_weights(small(), tmp_path / "detr.pth")
    assert "\n" not in str(error.value)


def test_images_with_no_pairs_and_with_more_than_queries() -> None:
    one = found(queries=3, images=2)
    truths = [pairs(0), pairs(5)]
    assert [len(rows) for rows, _ in match(one, truths)] == [0, 3]
    for kind in ("focal", "bce"):
        assert all(value.isfinite() for value in pair_losses(one, truths, kind).values())
        nothing = pair_losses(one, [pairs(0), pairs(0)], kind)
        assert all(float(nothing[name]) == 0 for name in nothing if name not in ("object", "verb"))
        assert float(nothing["object"]) > 0


def test_a_sure_and_wrong_verb_has_a_finite_loss() -> None:
    one = found()
    sure = one._replace(verbs=torch.full_like(one.verbs, -200).requires_grad_())
    loss = pair_losses(sure, [pairs(2, seed=1)], "focal")["verb"]
    assert loss.isfinite()
    loss.backward()
    assert sure.verbs.grad is not None
    assert sure.verbs.grad.isfinite().all()


def test_verbs_may_begin_improbable() -> None:
    """In a model from nothing, the loss of all verbs at a half would be most of what the first steps learn from."""
    states = torch.zeros(1, 1, 1, 32)
    with torch.no_grad():
        as_published, improbable = (
            model.bbox_head(states).verbs.sigmoid()  # type: ignore[operator]
            for model in (small(), small(verb_prior=0.01))
        )
    assert (as_published - 0.5).abs().max() < 0.1
    torch.testing.assert_close(improbable, torch.full_like(improbable, 0.01))


def test_what_is_not_finite_is_told_by_the_loss() -> None:
    one = found()
    broken = one._replace(objects=one.objects * float("nan"))
    assert not pair_losses(broken, [pairs(2)], "focal")["object"].isfinite()
