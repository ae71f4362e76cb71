"""Learned Dropout in whole models: binding, copies, distributed training, compilation, checkpointing, the engine."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from adapters.decoder import Decoder, build_decoder
from adapters.text_transformer import build_text_transformer
from adapters.timm_models import build_vit
from harness.binding import bind, sites, unregularize
from harness.engine import run_trial
from harness.errors import InputError
from harness.learned_mask import EmbeddingAttention, LearnedMask
from harness.mask_statistics import mask_statistics, mean_statistics
from harness.penalty import penalty
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import TrialRequest

VOCABULARY, CONTEXT, LAYERS = 31, 12, 3


def decoder(seed: int = 0, **options: Any) -> Decoder:
    torch.manual_seed(seed)
    options = {"layers": LAYERS, "dim": 12, "heads": 3, **options}
    model = build_decoder("learned-dropout-lm", options, vocabulary=VOCABULARY, context=CONTEXT)
    assert isinstance(model, Decoder)
    return model


def learned(seed: int = 0, **options: Any) -> Decoder:
    model = decoder(seed)
    bind(model, "learned-dropout", **options)
    return model


def tokens(batch: int = 2) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, CONTEXT), generator=torch.Generator().manual_seed(7))


def loss_of(model: nn.Module, forward: nn.Module | None = None) -> Tensor:
    batch = tokens()
    logits = (forward or model)(batch)
    extra = penalty(model, 0)
    assert extra is not None
    return cross_entropy(logits.flatten(0, 1), batch.flatten()) + extra


def masks(model: nn.Module) -> dict[str, LearnedMask]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LearnedMask)}


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, {"feed-forward": LAYERS}),
        ({"where": "attention"}, {"decoder-self": LAYERS}),
        (
            {"where": "everywhere"},
            {"embedding": 1, "decoder-self": LAYERS, "attention-output": LAYERS, "feed-forward": LAYERS},
        ),
        ({"dropout_input": "embed"}, {"mask-input": 1, "feed-forward": LAYERS}),
    ],
)
def test_where_it_stands(options: dict[str, Any], kinds: dict[str, int]) -> None:
    model = decoder()
    report = bind(model, "learned-dropout", **options)
    bound = [site.kind for site in report.bound]
    assert {kind: bound.count(kind) for kind in set(bound)} == kinds
    assert len(report.bound) + len(report.left) == len(sites(model)) == 2 + 3 * LAYERS
    assert len(masks(model)) == sum(count for kind, count in kinds.items() if kind != "mask-input")
    loss_of(model).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_attention_regularizers_leave_its_sites_alone_and_it_leaves_theirs() -> None:
    model = decoder()
    reasons = {site.kind: reason for site, reason in bind(model, "dropkey", ratio=0.3).left}
    assert reasons["feed-forward"] == "it does not regularise feed-forward sites"
    assert set(reasons) == {"feed-forward", "attention-output", "embedding", "mask-input"}
    reasons = {site.kind: reason for site, reason in bind(model, "learned-dropout").left}
    assert reasons["decoder-self"] == "where=feed-forward leaves decoder-self sites alone"
    assert reasons["mask-input"] == "masks come from hidden states"


def test_it_takes_the_place_of_the_models_own_dropout() -> None:
    model = decoder(dropout=0.9)
    bind(model, "learned-dropout", where="everywhere", mask_rounding="none")
    model.train()
    assert torch.equal(model(tokens()), model(tokens()))  # nothing is left that draws
    bind(model, "learned-dropout", mask_rounding="none")
    assert not torch.equal(model(tokens()), model(tokens()))  # the other dropouts are the model's again


def test_its_parameters_are_the_models_and_go_with_it() -> None:
    plain = decoder()
    keys, before = set(plain.state_dict()), plain.eval()(tokens())
    report = bind(plain, "learned-dropout", shift_init=3.14159)
    added = {f"{site.name}.regularization.{name}" for site in report.bound for name in ("qkv.weight", "shift")}
    assert set(plain.state_dict()) == keys | added
    assert added <= {name for name, _ in plain.named_parameters()}
    assert not torch.equal(plain(tokens()), before)
    bind(plain, "dropkey", ratio=0.3)
    assert set(plain.state_dict()) == keys
    assert torch.equal(plain(tokens()), before)
    bind(plain, "learned-dropout")
    unregularize(plain)
    assert set(plain.state_dict()) == keys
    assert torch.equal(plain(tokens()), before)


def test_it_takes_the_models_dtype_and_mode() -> None:
    model = decoder().double().eval()
    bind(model, "learned-dropout", where="everywhere")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert not any(module.training for module in model.modules())


def test_a_copy_stands_on_its_own() -> None:
    model = learned(where="everywhere")
    loss_of(model)
    model(tokens())  # a penalty that nobody has asked for yet
    copied = copy.deepcopy(model)
    reference = model.eval()(tokens())
    with torch.no_grad():
        for module in masks(copied).values():
            module.shift.fill_(3.14159)
    assert not torch.equal(copied.eval()(tokens()), reference)
    assert torch.equal(model(tokens()), reference)
    copied.load_state_dict(model.state_dict())
    assert torch.equal(copied(tokens()), reference)


@pytest.mark.parametrize("options", [{}, {"where": "everywhere", "harmonics": 2}, {"dropout_input": "embed"}])
def test_the_penalty_alone_reaches_every_parameter_of_every_mask(options: dict[str, Any]) -> None:
    model = learned(**options)
    with torch.no_grad():
        for module in masks(model).values():
            module.qkv.weight.mul_(20)  # far from the flat top of the cosine
    model(tokens())
    extra = penalty(model, 0)
    assert extra is not None
    extra.backward()
    for module in masks(model).values():
        queries, keys, values = module.qkv.weight.chunk(3)
        for parameter in (queries, keys, values, *module.parameters()):
            assert parameter is not None
        gradient = module.qkv.weight.grad
        assert gradient is not None
        for part in gradient.chunk(3):
            assert part.ne(0).all()
        assert module.shift.grad is not None
        assert module.shift.grad[: module.width].ne(0).all()
        if module.options.harmonics > 1:
            assert module.amplitude.grad is not None
            # The first term alone is the whole series, however it is scaled.
            assert module.amplitude.grad.view(2, -1).ne(0).all(dim=1).tolist() == [False, True]


def test_detached_embeddings_leave_their_attention_untrained_and_it_says_so() -> None:
    model = learned(dropout_input="embed", detached_input=True)
    (shared,) = (module for module in model.modules() if isinstance(module, EmbeddingAttention))
    assert not any(parameter.requires_grad for parameter in shared.parameters())
    trained = learned(dropout_input="embed")
    loss_of(trained).backward()
    (shared,) = (module for module in trained.modules() if isinstance(module, EmbeddingAttention))
    assert all(parameter.grad is not None for parameter in shared.parameters())


def test_statistics_of_a_model_in_training_and_in_evaluation() -> None:
    model = learned(shift_init=3.14159)
    with mask_statistics(model.eval()) as counted:
        model(tokens())
        model(tokens())
    assert list(counted) == [f"blocks.{layer}.feedforward_dropout" for layer in range(LAYERS)]
    assert mean_statistics(counted)["kept"] == 0
    assert mean_statistics(counted)["near_zero"] == 1
    assert next(iter(counted.values())).elements == 2 * 2 * CONTEXT * 12
    model(tokens())
    assert next(iter(counted.values())).elements == 2 * 2 * CONTEXT * 12  # it is over


def test_statistics_within_statistics_count_twice() -> None:
    model = learned(shift_init=1.0).eval()
    with mask_statistics(model) as outer:
        model(tokens())
        with mask_statistics(model) as inner:
            model(tokens())
            model(tokens())
        model(tokens())
    with mask_statistics(model) as alone:
        model(tokens())
    for name, counted in alone.items():
        assert inner[name].elements == 2 * counted.elements
        assert outer[name].elements == 4 * counted.elements
        assert outer[name].means() == pytest.approx(counted.means())


def test_vision_and_text_encoders_take_it_on_their_attention() -> None:
    image = build_vit("vit-digits", {}, image_size=(8, 8), channels=1, classes=10)
    report = bind(image, "learned-dropout", where="attention", shift_init=1.0)
    assert [site.width for site in report.bound] == [64] * 4
    assert image(torch.randn(2, 1, 8, 8)).isfinite().all()
    assert penalty(image, 0) is not None
    text = build_text_transformer("text-transformer", {"dropout": 0.0}, vocabulary=20, classes=3, max_length=9)
    words = torch.randint(1, 20, (2, 5))
    padded = torch.cat([words, torch.zeros(2, 4, dtype=torch.long)], dim=1)
    for where in ("attention", "feed-forward"):
        assert len(bind(text, "learned-dropout", where=where, shift_init=1.5).bound) == 2
        text.eval()
        torch.testing.assert_close(text(words), text(padded))  # padding is never seen by a mask either
    with pytest.raises(InputError, match="fits none of the"):
        bind(image, "learned-dropout", where="attention", heads=3)


def test_a_cache_of_keys_is_refused() -> None:
    from harness.attention import attend

    model = learned(where="attention")
    site = next(site for site in sites(model) if site.kind == "decoder-self")
    q, k = torch.randn(1, 3, 1, 4), torch.randn(1, 3, 5, 4)
    with pytest.raises(InputError, match="expected no cache of keys and values"):
        attend(q, k, k, site, training=False)


@pytest.mark.parametrize("options", [{"where": "everywhere"}, {"dropout_input": "embed", "detached_input": True}])
def test_it_compiles_whole(options: dict[str, Any]) -> None:
    model = decoder(layers=1)
    bind(model, "learned-dropout", shift_init=1.5, **options)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for training in (False, True):
        model.train(training)
        torch.manual_seed(3)
        expected = model(tokens())
        extra = penalty(model, 0)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(tokens()), expected)
        found = penalty(model, 0)
        assert (found is None) == (extra is None) == (not training)
        torch.testing.assert_close(found, extra)


def test_it_exports_in_evaluation() -> None:
    model = learned(shift_init=1.5).eval()
    exported = torch.export.export(model, (tokens(),)).module()
    torch.testing.assert_close(exported(tokens()), model(tokens()))


class Checkpointed(nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self, block: Any, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, *inputs: Any) -> Any:
        return checkpoint(self.block, *inputs, use_reentrant=self.reentrant)


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    model = learned(shift_init=1.5)
    saved = copy.deepcopy(model)
    saved.blocks = nn.ModuleList(Checkpointed(block, reentrant=False) for block in saved.blocks)
    for _ in range(2):  # the second pass: nothing is left of the first
        for each in (model, saved):
            torch.manual_seed(5)
            loss_of(each).backward()
    for one, other in zip(model.parameters(), saved.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(other.grad, one.grad)
    saved.blocks = nn.ModuleList(Checkpointed(block, reentrant=True) for block in model.blocks)
    with pytest.raises(InputError, match="use_reentrant=False"):
        loss_of(saved)


@pytest.mark.parametrize("options", [{}, {"dropout_input": "embed", "detached_input": True}])
def test_distributed_training_reduces_every_gradient(tmp_path: Path, options: dict[str, Any]) -> None:
    from torch import distributed

    model, alone = learned(shift_init=1.5, **options), learned(shift_init=1.5, **options)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # a parameter without a gradient would stop the second pass
            torch.manual_seed(5)
            loss_of(model, wrapped).backward()
            torch.manual_seed(5)
            loss_of(alone).backward()
        for one, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    finally:
        distributed.destroy_process_group()


def test_under_mixed_precision_mask_and_penalty_stay_in_float32() -> None:
    model = learned(shift_init=1.5)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens())
        extra = penalty(model, 0)
    assert extra is not None
    assert extra.dtype == torch.float32
    (logits.float().sum() + extra).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_engine_adds_the_penalty_to_the_loss_of_any_task(tmp_path: Path) -> None:
    """With a huge coefficient nothing matters but the penalty: the masks close."""
    kept = {}
    for coeff in (1e-6, 1000.0):
        request = TrialRequest(
            task="image-classification",
            data="digits",
            model="vit-digits",
            regularizer="learned-dropout",
            params={"where": "attention", "shift_init": 1.0, "max_coeff": coeff},
            overrides={
                "steps": 6, "batch_size": 32, "accumulate": 2, "lr": 0.1, "lr_schedule": "constant",
                "warmup": 0, "evaluate_every": 6, "model.depth": 1, "model.embed_dim": 16,
            },
            seed=1,
        )  # fmt: skip
        trial = TASKS.get("image-classification").trial_for(request, Settings())
        directory = RunDirectory.create(tmp_path, trial)
        run_trial(trial, directory, Settings(runs=tmp_path, device="cpu", threads=1))
        newest = max((directory.path / "checkpoint").glob("step-*.pt"))
        state = torch.load(newest, weights_only=True)["model"]
        kept[coeff] = torch.cos(state["blocks.0.attn.regularization.shift"] / 2).square().mean().item()
        start = next(event for event in directory.events() if event["event"] == "train")
        assert (start["loss"] > 100) == (coeff == 1000.0)
    assert kept[1000.0] < kept[1e-6] - 0.1
