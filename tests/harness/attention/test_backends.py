"""Selection of a backend for a call."""

from __future__ import annotations

import pytest
import torch

from dropbench.harness.attention import backends, dispatch
from dropbench.harness.attention.backends import backend, select_backend, used_backends
from dropbench.harness.attention.call import Call
from dropbench.harness.attention.kernels.c_library import load_library
from dropbench.harness.errors import InputError
from dropbench.harness.settings import BACKENDS, Settings
from tests.harness.attention.attention_case import DROPS, Case, Drop, needs_compiler


def test_the_default_is_the_fastest_for_the_device() -> None:
    case = Case(DROPS[0], "renormalize")
    expected = "eager" if load_library("cpu_fused") is None else "cpu"
    assert select_backend(case.q, case.k, case.v, case.spec, "renormalize", None) == expected


def test_unsupported_calls_use_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(DROPS[0], "renormalize", "additive")
    assert case.mask is not None
    trained_mask = case.mask.clone().requires_grad_()
    inputs = case.q, case.k, case.v, case.spec
    assert select_backend(*inputs, "renormalize", trained_mask) == "eager"
    out = dispatch.drop_attention(Call(case.q, case.k, case.v, trained_mask), case.spec, "renormalize", 0.4)
    assert torch.autograd.grad(out.sum(), trained_mask)[0].abs().sum() > 0
    with backend("triton"):
        monkeypatch.setattr("dropbench.harness.attention.kernels.triton_launch.interpreted", lambda: False)
        assert select_backend(*inputs, "renormalize", None) == "eager"


@pytest.mark.parametrize("seqlen", [7, 300])
def test_keys_and_values_of_fewer_heads_are_broadcast(seqlen: int) -> None:
    """Kernels that read as many heads as there are of the queries would read other memory."""
    case = Case(Drop("element", seqlen_k=seqlen), "renormalize", seqlen_q=seqlen)
    k, v = case.k[:, :1], case.v[:, :1]
    few, many = (
        dispatch.drop_attention(Call(case.q, *keys_and_values), case.spec, "renormalize", 0.4)
        for keys_and_values in ((k, v), (k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)))
    )
    torch.testing.assert_close(few, many)


def test_an_unknown_backend_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_BACKEND", "eagre")
    with pytest.raises(InputError, match=r"unknown backend 'eagre'.*eager"):
        Settings.from_environment()
    assert Settings.from_environment(backend="cpu").backend == "cpu"
    monkeypatch.setenv("DROPBENCH_BACKEND", "eager")
    assert Settings.from_environment().backend == "eager"
    assert set(BACKENDS) == {"auto", *backends.BACKENDS}


@needs_compiler
def test_a_request_ends_with_its_context() -> None:
    case = Case(DROPS[0], "renormalize")
    inputs = case.q, case.k, case.v, case.spec
    with backend("eager"):
        with backend("cpu"):
            assert select_backend(*inputs, "renormalize", None) == "cpu"
        with backend("auto"):
            assert select_backend(*inputs, "renormalize", None) == "cpu"
        assert select_backend(*inputs, "renormalize", None) == "eager"
        assert used_backends() == ["cpu", "eager"]
