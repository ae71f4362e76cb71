"""Test that models with regularized weights are saved and loaded under the usual keys, and continue from them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import BertConfig, BertForSequenceClassification

from dropbench import InputError, regularize, unregularize
from dropbench.harness.regularizers.auxiliary_loss import penalty

NAMES = ("mixout", "sigma-reparam", "weight-orthogonality")
pytestmark = pytest.mark.filterwarnings("ignore:regularize. weight-orthogonality")


def encoder(*, bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, bias=bias)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def bert() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 20}
    return BertForSequenceClassification(
        BertConfig(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    )


def trained(model: nn.Module, name: str) -> nn.Module:
    """Return a model with a regularizer whose state is no longer that of the start, in training mode."""
    regularize(model, name, quiet=True).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    for _ in range(3):
        run(model)
    return model


def run(model: nn.Module) -> Tensor:
    if isinstance(model, nn.TransformerEncoder):
        out: Tensor = model(torch.ones(2, 5, 8).cumsum(dim=1))
    else:
        out = model(torch.arange(10).view(2, 5)).logits
    return out


def passes(model: nn.Module) -> list[Tensor]:
    """Return the outputs of two training passes and of one in evaluation."""
    torch.manual_seed(1)
    outputs = [run(model.train()), run(model), run(model.eval())]
    model.train()
    return outputs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_plain_model_loads_the_weights_of_evaluation(name: str, bias: bool) -> None:
    plain = encoder(bias=bias)
    model = trained(encoder(bias=bias), name)
    saved = model.state_dict()
    assert [key for key in saved if "parametrizations" not in key] == list(plain.state_dict())
    plain.load_state_dict({key: value for key, value in saved.items() if "parametrizations" not in key})
    assert torch.equal(run(plain.eval()), run(model.eval()))


@pytest.mark.parametrize("name", NAMES)
def test_a_regularized_model_continues_from_its_state(name: str) -> None:
    model, twin = trained(encoder(), name), regularize(encoder(), name, quiet=True)
    twin.load_state_dict(model.state_dict())
    assert all(map(torch.equal, passes(twin), passes(copy.deepcopy(model))))
    copied = copy.deepcopy(model)
    copied.load_state_dict(model.state_dict())
    assert all(map(torch.equal, passes(copied), passes(model)))


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_a_plain_model_start_as_regularize_does(name: str) -> None:
    plain = encoder()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model = trained(encoder(), name)
    model.load_state_dict(plain.state_dict())
    torch.testing.assert_close(passes(model), passes(regularize(plain, name, quiet=True)))


@pytest.mark.parametrize("name", NAMES)
def test_saving_changes_nothing(name: str) -> None:
    model = trained(encoder(), name)
    twin = copy.deepcopy(model)
    torch.manual_seed(1)
    outputs = [run(model), run(twin)]
    model.state_dict()
    torch.manual_seed(1)
    outputs += [run(model)]
    torch.manual_seed(1)
    outputs += [run(twin)]
    assert torch.equal(outputs[2], outputs[3])
    if name == "weight-orthogonality":
        model.state_dict()
        assert penalty(model, 0) is not None


@pytest.mark.parametrize("name", NAMES)
def test_unregularized_modules_have_no_hooks(name: str) -> None:
    model = unregularize(trained(encoder(), name))
    assert list(model.state_dict()) == list(encoder().state_dict())
    assert not any(each._state_dict_hooks or each._load_state_dict_pre_hooks for each in model.modules())


@pytest.mark.parametrize("name", NAMES)
def test_save_pretrained_writes_what_from_pretrained_reads(name: str, tmp_path: Path) -> None:
    model: Any = trained(bert(), name)
    model.save_pretrained(tmp_path)
    loaded = BertForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(run(loaded.eval()), run(model.eval()))


@pytest.mark.parametrize("name", NAMES)
def test_accelerate_saves_and_loads_the_state(name: str, tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(trained(bert(), name))
    accelerator.save_state(str(tmp_path))
    expected = passes(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    run(model)
    accelerator.load_state(str(tmp_path))
    assert all(map(torch.equal, passes(model), expected))


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_weights_under_fsdp_are_right_or_refused_by_name(mesh: DeviceMesh) -> None:
    def sharded(model: nn.Module, *, reshard: bool) -> nn.Module:
        for each in (*model.get_submodule("layers").children(), model):
            fully_shard(each, mesh=mesh, reshard_after_forward=reshard)
        return model

    def loss(model: nn.Module) -> Tensor:
        torch.manual_seed(1)
        out, term = run(model.train()).square().sum(), penalty(model, 0)
        return out if term is None else out + term

    for name in ("mixout", "weight-orthogonality"):
        plain, model = (regularize(encoder(), name, quiet=True) for _ in range(2))
        sharded(model, reshard=False)
        loss(plain).backward()
        loss(model).backward()
        for ours, expected in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(cast(Any, ours.grad).full_tensor(), expected.grad)
    with pytest.raises(InputError, match=r"layers.0.self_attn: FSDP frees weights after the forward pass"):
        loss(sharded(regularize(encoder(), "weight-orthogonality", quiet=True), reshard=True))
    for name in NAMES:
        with pytest.raises(InputError, match="its weight is sharded: call `regularize` before FSDP"):
            regularize(sharded(encoder(), reshard=True), name, quiet=True)
