"""Every registered regularizer, and the one that docs/regularizers.md makes, by the same tests."""

from __future__ import annotations

import copy
import math
import runpy
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.spec import build_regularizer
from dropbench.harness.trials.plugins import load_plugins
from tests.covering import cover, pairwise
from tests.harness.given import site_with
from tests.paths import DOCS

RATIO = 0.4
GRID, PREFIX, BATCH, HEADS, TOKENS, SIZE = (2, 4), 1, 3, 2, 9, 5
PAGE = DOCS / "regularizers.md"


def code_blocks() -> list[str]:
    """The Python of docs/regularizers.md."""
    return [block.partition("\n```")[0] for block in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> type[Regularizer]:
    """The documentation's own regularizer, loaded as a plug-in is; registered no longer than that takes."""
    file = tmp_path_factory.mktemp("plugin") / "near.py"
    file.write_text(code_blocks()[0], encoding="utf-8")
    load_plugins([file])
    assert REGULARIZERS.entry("dropnear").plugin == str(file)
    built = REGULARIZERS.get("dropnear")
    del REGULARIZERS._entries["dropnear"]
    assert isinstance(built, type)
    return built


def site_for(regularizer: Regularizer, ratio: float | None = None) -> Site:
    site = site_with(regularizer, grid=GRID, prefix=PREFIX, ratio=ratio)
    site.width = HEADS * SIZE
    return site


def drops_attention(name: str) -> bool:
    """Return whether a regularizer acts on attention weights; those that act on outputs have tests of their own."""
    built = build_regularizer(name)
    needs_passes = built.has_objective  # it drops nothing before `prepare`
    fits = built.skip(site_for(built)) is None
    return "ratio" in type(built).model_fields and name != "none" and fits and not needs_passes


DROPPING = [name for name in REGULARIZERS if drops_attention(name)]
LOGITS = ["logit-noise", "temperature", "attentiondrop-blur"]
"""Regularizers that change logits, and drop nothing."""
EVERY = [*REGULARIZERS, "documented"]
SINGLE = [name for name in EVERY if name == "documented" or "parts" not in REGULARIZERS.entry(name).facts]


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    """A self-attention site with a regularizer at ratio 0.4, if it has a ratio."""
    if request.param == "documented":
        return site_for(request.getfixturevalue("documented")(ratio=RATIO))
    params = {"ratio": RATIO} if request.param in DROPPING else {}
    return site_for(build_regularizer(request.param, **params))


every = pytest.mark.parametrize("site", EVERY, indirect=True)
dropping = pytest.mark.parametrize("site", [*DROPPING, "documented"], indirect=True)


def across(*parameters: str, cases: list[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Parametrize a test by a site and other parameters."""
    return pytest.mark.parametrize(("site", *parameters), cases, indirect=["site"])


def qkv(tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(BATCH, HEADS, n, SIZE, generator=generator, requires_grad=True) for n in (tokens, TOKENS, TOKENS)
    )
    return q, k, v


def masks() -> dict[str, Tensor | None]:
    """One of each kind that libraries pass; in each, the last three keys of the second sample are hidden."""
    padded = torch.ones(BATCH, 1, 1, TOKENS, dtype=torch.bool)
    padded[1, ..., -3:] = False
    scattered = torch.rand(BATCH, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1)) < 0.8
    bias = torch.randn(1, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(2))
    return {
        "none": None,
        "padding": padded,
        "boolean": scattered & padded,
        "bias": bias,
        "bias and -inf": bias.masked_fill(~padded, float("-inf")),
        "bias and least": bias + torch.zeros(BATCH, 1, 1, TOKENS).masked_fill(~padded, torch.finfo(torch.float32).min),
        "bias and -1e4": bias + torch.zeros(BATCH, 1, 1, TOKENS).masked_fill(~padded, -1e4),
    }


IN_EVALUATION = cover(
    product(EVERY, masks(), [False, True]), lambda case: [case[0], case[1:]]
)  # one path for all regularizers
IN_TRAINING = pairwise([*DROPPING, "documented"], [*masks()], [False, True])
ON_HIDDEN_KEYS = pairwise([*DROPPING, *LOGITS, "documented"], [*masks()], [False, True], [TOKENS, 4])


@across("mask", "causal", cases=IN_EVALUATION)
def test_evaluation_is_sdpa_and_draws_nothing(site: Site, mask: str, causal: bool) -> None:
    q, k, v = qkv()
    before = torch.get_rng_state()
    out = attend(q, k, v, site, training=False, mask=masks()[mask], causal=causal)
    assert torch.equal(torch.get_rng_state(), before)
    given = masks()[mask]
    if causal and given is not None:
        lower = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        given = given & lower if given.dtype == torch.bool else given.masked_fill(~lower, float("-inf"))
    expected = scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=causal and given is None)
    assert torch.equal(out, expected)


@every
def test_ratio_0_equals_none(site: Site) -> None:
    q, k, v = qkv()
    site.ratio = 0.0
    assert torch.equal(attend(q, k, v, site, training=True), scaled_dot_product_attention(q, k, v))


@across("mask", "causal", cases=IN_TRAINING)
def test_training_differs_from_evaluation_and_from_draw_to_draw(site: Site, mask: str, causal: bool) -> None:
    q, k, v = qkv()
    torch.manual_seed(0)
    draws = torch.stack(
        [attend(q, k, v, site, training=True, mask=masks()[mask], causal=causal) for _ in range(12)]
    ).detach()
    plain = attend(q, k, v, site, training=False, mask=masks()[mask], causal=causal).detach()
    # In every sample and head, not only somewhere.
    assert ((draws - plain).abs().amax((0, 3, 4)) > 1e-3).all()
    assert (draws.std(0).amax((2, 3)) > 1e-3).all()


@dropping
def test_a_seed_repeats_it(site: Site) -> None:
    def draw(seed: int, site: Site) -> Tensor:
        torch.manual_seed(seed)
        return attend(*qkv(), site, training=True)

    assert torch.equal(draw(0, site), draw(0, site))
    assert not torch.equal(draw(0, site), draw(1, site))
    assert torch.equal(draw(0, site), draw(0, copy.deepcopy(site)))


@across("mask", "causal", "tokens", cases=ON_HIDDEN_KEYS)
def test_hidden_keys_never_get_weight(site: Site, mask: str, causal: bool, tokens: int) -> None:
    """Self attention and cross attention: hidden keys may hold anything finite, and no gradient reaches them."""
    given = masks()[mask]
    if given is not None and given.shape[-2] > 1:
        given = given[..., :tokens, :]
    seen = torch.ones(BATCH, HEADS, tokens, TOKENS, dtype=torch.bool)
    if mask not in ("none", "bias"):
        seen[1, ..., -3:] = False
    if given is not None and given.dtype == torch.bool:
        seen &= given
    if causal:
        seen &= torch.ones(tokens, TOKENS, dtype=torch.bool).tril()

    def run(query: int, huge: float) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv(tokens)
        hidden = ~seen[:, :, query]
        k, v = (leaf.detach().masked_fill(hidden[..., None], huge).requires_grad_() for leaf in (k, v))
        torch.manual_seed(query)
        out = attend(q, k, v, site, training=True, mask=given, causal=causal)[:, :, query]
        grads = torch.autograd.grad(out.sum(), (k, v))
        return out, grads[0][hidden], grads[1][hidden]

    for query in range(tokens):
        out, k_grad, v_grad = run(query, 1.0)
        # Keys of all 100 could outweigh -1e4 honestly: that is no mask, but a number in a sum.
        moved, *_ = run(query, 100.0 if mask.endswith("-1e4") else 1e6)
        torch.testing.assert_close(moved, out, rtol=0, atol=1e-6)
        assert k_grad.abs().sum() == v_grad.abs().sum() == 0


@pytest.mark.parametrize("site", [*DROPPING, *LOGITS, "documented"], indirect=True)
def test_an_additive_mask_gets_gradients(site: Site) -> None:
    bias = torch.randn(1, HEADS, TOKENS, TOKENS, requires_grad=True)
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(attend(*qkv(), site, training=True, mask=bias).square().sum(), bias)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # by kernels, and by operations of torch
@every
def test_rows_without_keys_give_0_with_finite_gradients(site: Site, dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in qkv())
    mask = torch.ones(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool)
    mask[0, :, 2] = False
    out = attend(q, k, v, site, training=True, mask=mask)
    assert (out[0, :, 2] == 0).all()
    total = torch.stack([out.sum(), *site.penalties]).sum()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(total, (q, k, v)))


@pytest.mark.parametrize("site", [*LOGITS, "attentiondrop-topk", "dropkey", "dropout"], indirect=True)
def test_a_nan_is_not_hidden(site: Site) -> None:
    q, k, v = (tensor.detach() for tensor in qkv())
    k[0, 0, 3, 1] = math.nan
    out = attend(q, k, v, site, training=True)
    assert out[0, 0].isnan().all()
    assert out[1:].isfinite().all()


@pytest.mark.parametrize("site", SINGLE, indirect=True)
def test_regularizers_are_frozen_and_closed(site: Site) -> None:
    regularizer = site.regularizer
    assert regularizer is not None
    for name in type(regularizer).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(regularizer, name, 0)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(regularizer).model_validate({"no_such_parameter": 1})
    assert type(regularizer)(**regularizer.model_dump()) == regularizer


def test_every_regularizer_has_a_help_and_is_documented_with_its_parameters() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in REGULARIZERS:
        assert len(REGULARIZERS.entry(name).help) > 10
        names = [name, *type(build_regularizer(name)).model_fields]
        assert [each for each in names if f"`{each}`" not in text] == []


def test_blocks_and_crosses_need_a_grid_that_they_do_not_cover() -> None:
    def reason(name: str, grid: tuple[int, int] | None, prefix: int = 0, **params: int | str) -> str | None:
        built = build_regularizer(name, **params)
        return built.skip(site_with(built, grid=grid, prefix=prefix))

    assert reason("dropkey-block", None) == "unit 'block' needs keys that form a grid"
    assert reason("dropkey-block", (14, 14)) is None
    assert reason("dropkey-block", (3, 3)) == "one block of size 3 covers all 3×3 keys"
    assert reason("dropkey-block", (3, 3), window=2) is None
    assert reason("dropkey-block", (3, 4)) is None
    assert reason("dropkey-block", (3, 3), prefix=1) is None  # the prefix token is what is left
    assert reason("dropkey-block", (3, 3), rescale="inverse") is None
    assert reason("dropkey-cross", (3, 4), window=3) == "one cross of size 3 covers all 3×4 keys"
    assert reason("dropkey-cross", (1, 5)) == "one cross of size 1 covers all 1×5 keys"
    assert reason("dropkey-cross", (3, 3)) is None
    assert reason("dropkey", None) is None


def test_the_docs_table_of_shares(exact_share: Callable[[str, int], tuple[float, ...]]) -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    shares = [row for row in rows if len(row) == 5 and "=" in row[0]]
    assert len(shares) == 7
    for cell, *numbers in shares:
        unit, size, *_ = (part.strip(" `") for part in cell.split(","))
        assert [number.strip() for number in numbers] == [f"{exact:.4f}" for exact in exact_share(unit, int(size[-1]))]


@pytest.fixture
def exact_share() -> Callable[[str, int], tuple[float, ...]]:
    from tests.harness.attention.reference import scalar_loops

    def shares(unit: str, window: int) -> tuple[float, ...]:
        grid, keys = ((14, 14), 196) if unit in ("block", "cross") else (None, 50)
        seed = scalar_loops.start_prob(unit, 0.3, window, grid)
        dropped = [1 - (1 - seed) ** count for count in scalar_loops.starts_over(unit, window, keys, grid, 0)]
        return seed, math.fsum(dropped) / keys, min(dropped), max(dropped)

    return shares


def test_the_docs_other_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text(code_blocks()[1], encoding="utf-8")
    runpy.run_path("example.py")
    assert "tensor([[" in capsys.readouterr().out
