"""Which GPUs run the kernels; a kernel that was compiled for the same sizes is found again, and no other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dropbench.harness.attention.kernels import triton_layout, triton_runtime
from dropbench.harness.attention.kernels.triton_layout import Layout, layout_of
from dropbench.harness.attention.kernels.triton_runtime import Launch, _gpu_reason, gpu_reason, warn_if_captured
from dropbench.harness.attention.reference.drop_masks import drop_nothing

GRID = 4, 2, 1


class Kernel:
    """Like a kernel of Triton: a launch returns what it compiled, which takes the constants by position."""

    arg_names = ("Tensor", "size", "seed", "BLOCK", "UNIT")

    def __init__(self) -> None:
        self.compilations: list[dict[str, Any]] = []
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def compile_and_launch(*args: Any, UNIT: int, BLOCK: int, **options: int) -> Compiled:
            self.compilations.append(options)
            compiled = Compiled(self)
            compiled[grid](*args, BLOCK, UNIT)
            return compiled

        return compile_and_launch


class Compiled:
    """The compiled form: takes all arguments by position."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def run(*args: Any) -> None:
            self.kernel.launches.append((grid, *args))

        return run


def test_a_compiled_kernel_is_launched_again_with_other_tensors_and_numbers() -> None:
    kernel, tensors = Kernel(), [torch.zeros(64), torch.ones(64)]
    run = Launch(kernel, GRID, (16,), {"UNIT": 1, "BLOCK": 32}, num_warps=4)
    for tensor, seed in zip(tensors, (5, 7), strict=True):
        run((tensor,), (seed,))
    assert kernel.compilations == [{"num_warps": 4}]
    assert kernel.launches == [(GRID, tensors[0], 16, 5, 32, 1), (GRID, tensors[1].data_ptr(), 16, 7, 32, 1)]


def test_what_is_compiled_for_aligned_tensors_is_not_used_for_others() -> None:
    kernel, tensor = Kernel(), torch.zeros(64)
    run = Launch(kernel, GRID, (16,), {"UNIT": 1, "BLOCK": 32})
    for start in (1, 0, 1, 4):
        run((tensor[start:],), (5,))
    assert len(kernel.compilations) == 3
    assert kernel.launches[-1] == (GRID, tensor[4:].data_ptr(), 16, 5, 32, 1)


def _layout(**changes: Any) -> Layout:
    shape, dtype = changes.get("shape", (1, 2, 64, 16)), changes.get("dtype", torch.float16)
    q = torch.zeros(shape, dtype=dtype)[..., : changes.get("size", 16)]
    mask = torch.zeros(changes["mask"], dtype=torch.bool) if "mask" in changes else None
    spec = replace(drop_nothing(), unit=changes.get("unit", "element"), window=changes.get("window", 1))
    return layout_of(q, q, q, mask, spec, changes.get("keep_scale"), changes.get("causal", False), 0.25)


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": (1, 2, 96, 16)}, {"dtype": torch.bfloat16}, {"size": 8}, {"mask": (64, 64)}, {"unit": "column"},
        {"window": 3}, {"keep_scale": 2.0}, {"causal": True},
    ],
    ids=str,
)  # fmt: skip
def test_calls_share_a_layout_unless_a_launch_depends_on_what_differs(changed: dict[str, Any]) -> None:
    assert _layout() is _layout()
    assert _layout(**changed) is not _layout()


def test_the_number_of_remembered_layouts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_layout, "_layouts", {})
    monkeypatch.setattr(triton_layout, "MAX_LAYOUTS", 3)
    for rows in range(1, 11):
        _layout(shape=(1, 1, rows, 16))
        assert 0 < len(triton_layout._layouts) <= 3


H200 = {"name": "H200", "major": 9, "minor": 0, "shared_memory_per_block_optin": 232_448}


@pytest.mark.parametrize(
    ("gpu", "wide_float32", "reason"),
    [
        ({}, True, None),
        ({"major": 7, "minor": 5}, False, "H200 has no tensor cores that Triton uses"),
        ({"shared_memory_per_block_optin": 101_376}, False, None),
        ({"shared_memory_per_block_optin": 101_376}, True, "needs more shared memory than H200 has"),
        ({"shared_memory_per_block_optin": 166_912}, True, None),
    ],
    ids=str,
)
def test_kernels_are_refused_by_gpus_that_cannot_run_them(
    gpu: dict[str, int], wide_float32: bool, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**H200 | gpu))
    monkeypatch.setattr(triton_runtime, "_compile_error", lambda index: None)
    _gpu_reason.cache_clear()
    found = gpu_reason(0, wide_float32=wide_float32)
    _gpu_reason.cache_clear()
    assert (found is None) if reason is None else (reason in (found or ""))


def test_compilers_take_the_reason_for_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_runtime, "_gpu_reason", lambda index, wide_float32: f"GPU {index} is old")

    def call(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if gpu_reason(x.dim(), wide_float32=x.dtype == torch.float32) == "GPU 1 is old" else x

    assert torch.compile(call, fullgraph=True, backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_gpu_for_which_triton_cannot_compile_is_refused_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Triton, or without a GPU, its first kernel cannot be compiled, as without a C compiler."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**H200))
    _gpu_reason.cache_clear()
    with pytest.warns(RuntimeWarning, match="on GPU 77: Triton cannot compile its kernels: .") as warned:
        reasons = {gpu_reason(77, wide_float32=wide_float32) for wide_float32 in (False, True, False)}
    _gpu_reason.cache_clear()
    assert len(warned) == len(reasons) == 1


def test_a_captured_graph_is_warned_of(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    for captured in (False, True):
        assert not recwarn.list
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda captured=captured: captured)
        warn_if_captured(torch.device("cpu"))
        warn_if_captured(torch.device("cuda", 0))
    assert ["drop the same" in str(warning.message) for warning in recwarn] == [True]
