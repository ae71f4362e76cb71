"""Test VOLO: equality with timm, layers in order, other image sizes, token labeling."""

from __future__ import annotations

from typing import Any, cast

import pytest
import timm
import torch
from torch import Tensor, nn

from dropbench import InputError, Site
from dropbench.adapters.vision.volo import Volo, build_volo, random_box
from dropbench.harness.models.catalog import CIFAR, IMAGENET, MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch

D1, D2, D3 = "volo-d1", "volo-d2", "volo-d3"


def build(image: int = 32, **options: Any) -> Volo:
    torch.manual_seed(0)
    shape = {"embed_dim": 16, "num_heads": 4, "stem_dim": 4, **options}
    return cast(Volo, build_volo("volo-cifar", shape, image_size=(image, image), channels=3, classes=5)).eval()


def on_meta(name: str, **shape: Any) -> Volo:
    with torch.device("meta"):
        return cast(Volo, MODELS.get(name)(name, {}, **(shape or IMAGENET)))


def filled(model: nn.Module) -> nn.Module:
    """Fill a model from the meta device with simple random weights and initial normalization statistics."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, values in model.to_empty(device="cpu").state_dict().items():
            if name.endswith("running_var") or (values.ndim == 1 and name.endswith("weight")):
                values.fill_(1)
            elif values.ndim:
                values.uniform_(-0.1, 0.1)
            else:
                values.zero_()
    return model.eval()


@pytest.mark.parametrize(("name", "published"), [(D1, 26.6), (D2, 58.7), (D3, 86.3)])
def test_the_number_of_parameters_is_the_published_one(name: str, published: float) -> None:
    counted = sum(parameter.numel() for parameter in on_meta(name).parameters())
    assert counted / 1e6 == pytest.approx(published, rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("name", [D1, D2, D3])
def test_logits_equal_those_of_timm_at_the_published_size(name: str) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(f"{name.replace('-', '_')}_224")
    ours = filled(on_meta(name))
    theirs = theirs.to_empty(device="cpu").eval()
    theirs.load_state_dict(ours.state_dict())
    image = torch.randn(1, 3, 224, 224)
    called: list[Site] = []
    with torch.no_grad():
        expected = theirs(image)
        assert expected.std() > 0.01
        bind(ours, "dropkey", ratio=0.3, schedule="decreasing", kinds=["outlook", "encoder-self", "class"])
        with watch(ours, lambda site, weights: called.append(site)):  # computed by `attend`
            torch.testing.assert_close(ours(image), expected, atol=1e-5, rtol=0)
        if name == D1:
            torch.testing.assert_close(ours(image), expected, atol=1e-5, rtol=0)
            assert (ours.train()(image) - expected).abs().max() > 1e-3
    layers = {D1: 4 + 14, D2: 6 + 18, D3: 8 + 28}[name]
    assert [site.kind for site in called].count("class") == 2
    assert len(called) == layers + 2
    assert [(site.layer, site.depth) for site in called[:-2]] == [(layer, layers) for layer in range(layers)]


@pytest.mark.parametrize(
    ("image", "outlook", "tokens"),
    [
        ((224, 224), (28, 28), (14, 14)),
        ((64, 64), (16, 16), (8, 8)),
        ((32, 48), (16, 24), (8, 12)),
        ((8, 8), (4, 4), (2, 2)),
    ],
)
def test_small_images_have_small_strides(
    image: tuple[int, int], outlook: tuple[int, int], tokens: tuple[int, int]
) -> None:
    with torch.device("meta"):
        model = cast(Volo, build_volo(D1, {"layers": "1,1"}, image_size=image, channels=3, classes=5))
    grids: dict[str, tuple[int, ...]] = {}
    network = model.network
    network[0].register_forward_hook(lambda module, inputs, out: grids.update(outlook=tuple(out.shape[1:3])))
    network[2].register_forward_hook(lambda module, inputs, out: grids.update(tokens=tuple(out.shape[1:3])))
    assert model(torch.empty(2, 3, *image, device="meta")).shape == (2, 5)
    assert grids == {"outlook": outlook, "tokens": tokens}
    assert model.pos_embed.shape[1:3] == tokens


# Token labeling.


def test_the_outputs_of_boxes_of_no_and_of_all_tokens() -> None:
    model, images = build(), torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        (classes, tokens), mixed = (model(images, box) for box in ((0, 0, 0, 0), (0, 0, 8, 8)))
        assert (classes.shape, tokens.shape) == ((3, 5), (3, 64, 5))
        torch.testing.assert_close(model(images), classes + 0.5 * tokens.amax(dim=1))
    torch.testing.assert_close(mixed, (classes.flip(0), tokens))
    assert (classes - classes.flip(0)).abs().max() > 1e-4


def test_tokens_in_a_box_are_exchanged_and_their_logits_moved_back() -> None:
    """Compare inputs of the network and logits token by token."""
    model, images, box = build(), torch.randn(3, 3, 32, 32), (1, 2, 4, 7)
    network_inputs: list[Tensor] = []
    model.network[0].register_forward_pre_hook(lambda module, inputs: network_inputs.append(inputs[0]))
    normed: list[Tensor] = []
    model.norm.register_forward_hook(lambda module, inputs, out: normed.append(out[:, 1:]))
    with torch.no_grad():
        _, tokens = model(images, box)
        patches = model.patch_embed(images).permute(0, 2, 3, 1)
        assert model.aux_head is not None
        logits = model.aux_head(normed[0]).unflatten(1, (8, 8))
    for image in range(3):
        for row in range(16):
            for column in range(16):
                inside = 2 * 1 <= row < 2 * 4 and 2 * 2 <= column < 2 * 7
                source = 2 - image if inside else image
                assert torch.equal(network_inputs[0][image, row, column], patches[source, row, column])
        for row in range(8):
            for column in range(8):
                source = 2 - image if 1 <= row < 4 and 2 <= column < 7 else image
                assert torch.equal(tokens[image, 8 * row + column], logits[source, row, column])


def test_random_boxes_are_within_the_grid_and_depend_on_the_seed() -> None:
    torch.manual_seed(0)
    boxes = [random_box(8, 12) for _ in range(4000)]
    assert all(0 <= top <= bottom <= 8 and 0 <= left <= right <= 12 for top, left, bottom, right in boxes)
    assert {box[0] for box in boxes} == set(range(8))
    shares = [(bottom - top) * (right - left) / 96 for top, left, bottom, right in boxes]
    # The mean would be half of the grid without rounding down and clipping; rows and columns are even, and never all.
    assert 0.2 < sum(shares) / len(shares) < 0.35
    assert max(shares) == 6 * 10 / 96
    torch.manual_seed(0)
    assert [random_box(8, 12) for _ in range(10)] == boxes[:10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "2,4"}, r"^unknown option of model volo-cifar 'layer'.*layers"),
        ({"layers": "0,4"}, r"^model volo-cifar: layers=0,4: string should match pattern"),
        ({"num_heads": 10}, r"^model volo-cifar: num_heads=10: expected an even number that divides embed_dim=192$"),
        ({"stride": 2}, r"^model volo-cifar: stride=2: input should be 16, 8 or 4$"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MODELS.get("volo-cifar")("volo-cifar", options, **CIFAR)


def test_images_that_the_stride_does_not_divide_are_refused() -> None:
    with pytest.raises(InputError, match=r"^model volo-d1: stride=4 does not divide images of 33×32 pixels$"):
        build_volo(D1, {}, image_size=(33, 32), channels=3, classes=5)
