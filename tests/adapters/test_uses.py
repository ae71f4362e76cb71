"""Test uses of regularized models: copying, saving, export, compilation, checkpointing, distributed training."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from dropbench import regularize, sites, training_loss, unregularize
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from tests.adapters.families import Family
from tests.adapters.test_contract import FAMILIES

drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)
CHOSEN = ("torch-encoder", "timm-vit", "timm-volo", "transformers-bert", "transformers-t5")
COMPILED_TWICE = (
    "dropkey", "dropout", "drophead", "logit-noise", "attention-entropy", "mixout", "temperature", "value-dropout",
    "headmask", "hiddencut", "dropdim:unit=span",
)  # fmt: skip


@pytest.fixture(params=CHOSEN)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def test_autocast(family: Family) -> None:
    model = drop(family.model()).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = family.run(model)
    out.float().square().mean().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(family.run(model.eval()), family.run(unregularize(model)))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["torch-encoder", "timm-volo", "transformers-bert"], indirect=True)
def test_export_in_evaluation(family: Family) -> None:
    model = drop(family.model())
    inputs = family.inputs()
    exported = torch.export.export(model, (), inputs).module()
    torch.testing.assert_close(family.output(exported(**inputs)), family.run(model), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["torch-encoder", "timm-vit", "transformers-bert"], indirect=True)
def test_compilation_to_one_graph(family: Family) -> None:
    model = drop(family.model()).train()
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    inputs = family.inputs()
    assert torch.equal(family.run(compiled, inputs), family.run(model, inputs))
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:regularize. .* changes over steps")
@pytest.mark.parametrize("name", COMPILED_TWICE)
def test_a_schedule_over_steps_compiles_a_model_twice(name: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = regularize(encoder(), name, over="increasing@1", quiet=True)
    compiled: Any = torch.compile(model, backend="aot_eager")
    for step in range(5):
        loss = training_loss(
            model, lambda batch: (compiled(batch).sum(), batch), torch.ones(2, 5, 8), step=step, progress=step / 5
        )
        loss.backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train()


def test_a_copy_after_a_training_pass_has_no_pending_penalties() -> None:
    model = regularize(encoder(), "attention-entropy", quiet=True)
    model(torch.ones(2, 5, 8))
    copied = copy.deepcopy(model)
    assert all(site.penalties for site in sites(model))
    assert not any(site.penalties for site in sites(copied))
    assert copied(torch.ones(2, 5, 8)).shape == (2, 5, 8)


@pytest.mark.parametrize("name", ["dropkey", "dropout", "drophead", "hiddencut", "attention-entropy", "sigma-reparam"])
def test_training_passes_without_data_have_shapes_alone(name: str) -> None:
    """On the meta device, and in batches without samples."""
    model = regularize(encoder(), name, quiet=True)
    assert model(torch.ones(0, 5, 8)).shape == (0, 5, 8)
    assert model.to("meta")(torch.ones(2, 5, 8, device="meta")).shape == (2, 5, 8)


@pytest.mark.parametrize("name", ["sigma-reparam", "mixout", "weight-orthogonality"])
@pytest.mark.parametrize("compute", [parametrizations.weight_norm, prune.identity], ids=["weight_norm", "pruning"])
def test_weights_that_are_no_parameters_are_skipped(name: str, compute: Callable[..., Any]) -> None:
    model = encoder()
    compute(model.layers[1].linear1, "weight")
    x = torch.ones(2, 5, 8)
    keys = list(model.state_dict())
    report = bind(model, name)
    assert [reason for _, reason in report.skipped if "computed" in reason] == [
        "its weight is computed, as by weight_norm or pruning"
    ]
    model.train()(x).square().mean().backward()
    before = model.eval()(x)
    unregularize(model)
    assert list(model.state_dict()) == keys
    assert torch.equal(model.eval()(x), before)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformers-bert"], indirect=True)
def test_a_pickled_model_is_regularized_in_another_process(family: Family, tmp_path: Path) -> None:
    model = drop(family.model()).train()
    torch.save((model, family.inputs()), tmp_path / "model.pt")
    code = (
        "import sys, dropbench.adapters, torch; model, inputs = torch.load(sys.argv[1], weights_only=False);"
        " torch.manual_seed(3); out = model(**inputs); torch.save(getattr(out, 'last_hidden_state', out), sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "model.pt", tmp_path / "out.pt"], check=True)
    torch.testing.assert_close(torch.load(tmp_path / "out.pt"), family.run(model))


@pytest.mark.parametrize("family", ["torch-encoder", "timm-vit", "transformers-bert-eager"], indirect=True)
def test_masked_keys_of_a_site_are_masked_in_evaluation(family: Family) -> None:
    model = drop(family.model())
    with torch.no_grad():
        before = family.run(model)
        weights: list[torch.Tensor] = []
        with watch(model, lambda site, values: weights.append(values)):
            family.run(model)
        for site in sites(model):
            site.masked_keys = torch.arange(weights[0].shape[-1])[None] == 1
        assert (family.run(model) - before).abs().max() > 1e-3
        for site in sites(model):
            site.masked_keys = None
        assert torch.equal(family.run(model), before)


def test_a_regularizer_with_parameters_is_part_of_the_model_and_active_in_evaluation(family: Family) -> None:
    model = family.model()
    with torch.no_grad():
        before = family.run(model)
    keys = list(model.state_dict())
    options: dict[str, Any] = {"where": "attention", "shift_init": 3.0, "l1_norm_penalty": "none"}
    report = bind(model, "learned-dropout", **options)
    own = [key for key in model.state_dict() if key not in keys]
    assert {key.partition(".regularization.")[0] for key in own} == {site.name for site in report.bound}
    with torch.no_grad():
        assert (family.run(model) - before).abs().max() > 1e-3
    family.run(model.train()).square().mean().backward()
    trained = dict(model.named_parameters())
    assert all(grad is not None and torch.isfinite(grad).all() for grad in (trained[key].grad for key in own))
    unregularize(model.eval())
    assert list(model.state_dict()) == keys
    if family.name != "timm-volo":  # its running statistics have changed
        with torch.no_grad():
            assert torch.equal(family.run(model), before)
