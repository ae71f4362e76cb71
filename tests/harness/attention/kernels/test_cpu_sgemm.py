"""Products of the AVX-512 kernel: exact for integers, within rounding otherwise, and torch's own for other calls."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from harness.attention.kernels import c_library, cpu_sgemm
from harness.attention.kernels.cpu_sgemm import fast_sgemm
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.engine import run_trial
from harness.trials.task import TASKS
from harness.trials.trial import TrialRequest
from tests.harness.attention.attention_case import needs_compiler

CPUINFO = Path("/proc/cpuinfo")
MODEL = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
# Not skipped by `is_used`, which is also False if the kernel cannot be compiled.
ignored_by_mkl = "avx512f" in MODEL and "GenuineIntel" not in MODEL and torch.backends.mkl.is_available()
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not ignored_by_mkl, reason="only for MKL on processors with AVX-512 that are not Intel's"),
]

ROWS = (*range(1, 16), 14 * 8 * 2 + 1)
DEPTHS = (1, 2, 383, 384, 385, 1000)
Call = Callable[[], Tensor]


def integers(*shape: int) -> Tensor:
    """Return random integers whose products float32 represents exactly."""
    return torch.randint(-8, 9, shape).float()


def padded(matrix: Tensor) -> Tensor:
    """Return the matrix as a part of a larger one, which is NaN elsewhere."""
    larger = torch.full((len(matrix) + 2, matrix.shape[1] + 5), torch.nan)
    larger[1:-1, 3:-2] = matrix
    return larger[1:-1, 3:-2]


assert_same = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
LAYOUTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x, lambda x: x.t().contiguous().t(), padded, lambda x: padded(x.t()).t(),
)  # fmt: skip


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute small products with the kernel, too, and the same ones in each run."""
    monkeypatch.setattr(cpu_sgemm, "MIN_MULTIPLICATIONS", 1)
    torch.manual_seed(0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the C functions that were called."""
    names: list[str] = []

    def load(library: str, name: str) -> Callable[..., None]:
        names.append(name)
        return c_library.load_function(library, name)

    monkeypatch.setattr(cpu_sgemm, "load_function", load)
    return names


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 31, 32, 33, 513])
def test_products_of_integers_are_exact(columns: int, depth: int, calls: list[str]) -> None:
    layouts = list(itertools.product(LAYOUTS, LAYOUTS))
    with fast_sgemm():
        for rows in ROWS:
            a, b, bias = integers(rows, depth), integers(depth, columns), integers(columns)
            expected = (a.double() @ b.double()).float()
            for case, (layout_a, layout_b) in enumerate(layouts):
                operands = layout_a(a), layout_b(b)
                message = f"{rows} rows, layouts {case}"
                assert_same(torch.mm(*operands), expected, msg=message)
                assert_same(torch.addmm(bias, *operands), expected + bias, msg=message)
    assert len(calls) == 2 * len(layouts) * len(ROWS)


@pytest.mark.parametrize("depth", DEPTHS)
def test_products_are_within_rounding(depth: int) -> None:
    """Rounding errors of a sum partly cancel, so that the bound grows with √k (Higham and Mary, 2019)."""
    a, b, bias = torch.randn(225, depth), torch.randn(depth, 513), torch.randn(513)
    bound = depth**0.5 * torch.finfo(a.dtype).eps * (a.double().abs() @ b.double().abs() + bias.abs())
    expected = a.double() @ b.double()
    with fast_sgemm():
        assert ((torch.mm(a, b) - expected).abs() <= bound).all()
        assert ((torch.addmm(bias, a, b) - (expected + bias)).abs() <= bound).all()


@pytest.mark.parametrize(("rows", "columns"), [(225, 513), (513, 225), (1, 1000), (1000, 1), (300, 96), (97, 300)])
def test_bits_depend_on_neither_threads_nor_other_rows(
    rows: int, columns: int, request: pytest.FixtureRequest, calls: list[str]
) -> None:
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    a, b, bias = torch.randn(rows, 400), torch.randn(400, columns), torch.randn(columns)
    with fast_sgemm():
        torch.set_num_threads(1)
        product, sums = torch.mm(a, b), torch.addmm(bias, a, b)
        for threads, layout_a, layout_b in itertools.product((1, 2, 3), LAYOUTS[:2], LAYOUTS[:2]):
            torch.set_num_threads(threads)
            assert torch.equal(torch.mm(layout_a(a), layout_b(b)), product)
            assert torch.equal(torch.addmm(bias, layout_a(a), layout_b(b)), sums)
        for part in (1, 13, 15, 32, 90):
            assert torch.equal(a[-part:] @ b, product[-part:])
            assert torch.equal(a @ b[:, -part:], product[:, -part:])
    assert len(calls) == 2 + 2 * 12 + 2 * 5


@pytest.mark.parametrize(("trans_a", "trans_b"), ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.5, 0.0), (2.0, 1.0), (1.0, -0.25), (-0.5, 2.0)])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (15, 33, 2), (33, 15, 384), (47, 29, 800), (600, 14, 385)])
def test_the_blas_function_is_exact_for_integers(
    trans_a: str, trans_b: str, alpha: float, beta: float, m: int, n: int, k: int
) -> None:
    """Matrices are stored by columns, as the rows of tensors, in larger ones."""
    address = cpu_sgemm.sgemm()
    assert address is not None
    a, b, c = integers(m, k), integers(k, n), integers(m, n)
    stored_a, stored_b = padded(a.t() if trans_a == "N" else a), padded(b.t() if trans_b == "N" else b)
    out = torch.full((n + 2, m + 5), torch.nan)
    if beta:
        out[1:-1, 3:-2] = c.t()
    expected = out.clone()
    expected[1:-1, 3:-2] = (alpha * (a.double() @ b.double()) + beta * c).t()
    sizes = [ctypes.byref(ctypes.c_int(size)) for size in (m, n, k)]
    strides = [ctypes.byref(ctypes.c_int(stored.stride(0))) for stored in (stored_a, stored_b, out)]
    scales = [ctypes.byref(ctypes.c_float(scale)) for scale in (alpha, beta)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(address)(
        trans_a.encode(), trans_b.encode(), *sizes, scales[0], stored_a.data_ptr(), strides[0],
        stored_b.data_ptr(), strides[1], scales[1], out[1:-1, 3:-2].data_ptr(), strides[2],
    )  # fmt: skip
    assert_same(out, expected)


def test_nan_and_infinity_propagate_as_in_torch(calls: list[str]) -> None:
    a, b, bias = torch.randn(30, 400), torch.randn(400, 50), torch.randn(50)
    a[3, 7] = b[390, 20] = bias[31] = torch.nan
    a[5, 2] = b[1, 33] = bias[40] = torch.inf
    a[8, 399] = b[2, 49] = -torch.inf
    b[2, 45] = 0.0
    expected = torch.mm(a, b), torch.addmm(bias, a, b)
    with fast_sgemm():
        products = torch.mm(a, b), torch.addmm(bias, a, b)
    assert len(calls) == 2
    for product, torchs in zip(products, expected, strict=True):
        # Finite elements differ by rounding.
        assert_same(product.where(~product.isfinite(), 0.0), torchs.where(~torchs.isfinite(), 0.0))


A, B, BIAS = (torch.linspace(-3, 2, numel).sin() for numel in (20 * 30, 30 * 40, 40))
A, B = A.view(20, 30), B.view(30, 40)
LEFT_TO_TORCH: dict[str, Call] = {
    "float64": lambda: torch.mm(A.double(), B.double()),
    "bfloat16": lambda: torch.mm(A.bfloat16(), B.bfloat16()),
    "int64": lambda: torch.mm((9 * A).long(), (9 * B).long()),
    "no rows": lambda: torch.mm(A[:0], B),
    "no columns": lambda: torch.mm(A, B[:, :0]),
    "no depth": lambda: torch.mm(A[:, :0], B[:0]),
    "expanded rows": lambda: torch.mm(A[:1].expand(20, -1), B),
    "expanded columns": lambda: torch.mm(A, B[:, :1].expand(-1, 40)),
    "strided both ways": lambda: torch.mm(A[::2, ::2], B[::2]),
    "b strided both ways": lambda: torch.mm(A[:, ::2], B[::2, ::2]),
    "rows that overlap": lambda: torch.mm(A, B.flatten()[:70].unfold(0, 40, 1)[:30]),
    "float64 and bias": lambda: torch.addmm(BIAS.double(), A.double(), B.double()),
    "no depth and bias": lambda: torch.addmm(BIAS, A[:, :0], B[:0]),
    "bias matrix": lambda: torch.addmm(B[:20, :20].t(), A, B[:, :20]),
    "bias of one number": lambda: torch.addmm(BIAS[:1], A, B),
    "strided bias": lambda: torch.addmm(B.flatten()[::30], A, B),
    "expanded bias": lambda: torch.addmm(BIAS[:1].expand(40), A, B),
    "alpha": lambda: torch.addmm(BIAS, A, B, alpha=0.5),
    "beta": lambda: torch.addmm(BIAS, A, B, beta=-2),
    "alpha and beta": lambda: torch.addmm(BIAS, A, B, alpha=3, beta=3),
    "unused bias": lambda: torch.addmm(BIAS * torch.nan, A, B, beta=0),
}


@pytest.mark.parametrize("call", LEFT_TO_TORCH.values(), ids=LEFT_TO_TORCH)
def test_other_calls_are_left_to_torch(call: Call, calls: list[str]) -> None:
    expected = call()
    with fast_sgemm():
        product = call()
    assert_same(product, expected)
    assert product.stride() == expected.stride()
    assert not calls


ERRORS: dict[str, Call] = {
    "shapes": lambda: torch.mm(A, A),
    "vector": lambda: torch.mm(A, B[:, 0]),
    "three dimensions": lambda: torch.mm(A[None], B),
    "dtypes": lambda: torch.mm(A, B.double()),
    "shapes and bias": lambda: torch.addmm(BIAS, A, A),
    "short bias": lambda: torch.addmm(BIAS[:39], A, B),
    "long bias": lambda: torch.addmm(B.flatten()[:41], A, B),
    "bias dtype": lambda: torch.addmm(BIAS.double(), A, B),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS)
def test_errors_are_torchs(call: Call) -> None:
    with pytest.raises(RuntimeError) as expected:
        call()
    with fast_sgemm(), pytest.raises(RuntimeError) as actual:
        call()
    assert (type(actual.value), str(actual.value)) == (type(expected.value), str(expected.value))


def test_small_products_are_left_to_torch(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    for minimum, expected in ((20 * 30 * 40 + 1, 0), (20 * 30 * 40, 1)):
        monkeypatch.setattr(cpu_sgemm, "MIN_MULTIPLICATIONS", minimum)
        with fast_sgemm():
            torch.mm(A, B)
        assert len(calls) == expected


def test_gradients_of_integers_are_exact(calls: list[str]) -> None:
    """The layers' input, weights and bias are integers, and so is the gradient of their output."""
    shapes = ((3, 50, 100), (70, 100), (70,), (40, 70), (3, 50, 40))
    *tensors, d_out = (integers(*shape).clamp(-3, 3).requires_grad_() for shape in shapes)

    def gradients(x: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor) -> tuple[Tensor, ...]:
        out = F.linear(F.linear(x, weight, bias).relu(), last_weight)
        return out, *torch.autograd.grad((out * d_out).sum(), (x, weight, bias, last_weight))

    expected = gradients(*(tensor.double() for tensor in tensors))
    with fast_sgemm():
        actual = gradients(*tensors)
    assert len(calls) == 6, "output, gradient of the input and gradient of the weight, for two layers"
    for ours, exact in zip(actual, expected, strict=True):
        assert torch.equal(ours.double(), exact)


@pytest.mark.parametrize("error", [None, KeyError], ids=["", "error"])
def test_override_ends_with_the_context(error: type[Exception] | None, calls: list[str]) -> None:
    product, sums = torch.mm(A, B), torch.addmm(BIAS, A, B)
    with suppress(KeyError), fast_sgemm():
        torch.addmm(BIAS, A, torch.mm(B, B.t()) @ B)
        if error:
            raise error
    assert len(calls) == 3
    assert torch.equal(torch.mm(A, B), product)
    assert torch.equal(torch.addmm(BIAS, A, B), sums)
    assert len(calls) == 3, "torch computes them"


ELSEWHERE: dict[str, tuple[object, str, object]] = {
    "Intel": (cpu_sgemm, "cpu_model", b"vendor_id : GenuineIntel\nflags : avx2 avx512f"),
    "no AVX-512": (cpu_sgemm, "cpu_model", b"vendor_id : AuthenticAMD\nflags : avx2"),
    "no compiler": (cpu_sgemm, "load_library", None),
    "no MKL": (torch.backends.mkl, "is_available", False),
}


@pytest.mark.parametrize(("owner", "name", "value"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_nothing_is_replaced_elsewhere(
    owner: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    assert cpu_sgemm.is_used()
    torchs = ctypes.cast(ctypes.CDLL(torch._C.__file__).sgemm_, ctypes.c_void_p).value
    assert cpu_sgemm.sgemm() != torchs
    monkeypatch.setattr(owner, name, lambda *_: value)
    monkeypatch.setattr(cpu_sgemm, "_ignored_by_mkl", cpu_sgemm._ignored_by_mkl.__wrapped__)
    assert cpu_sgemm.sgemm() == torchs
    with fast_sgemm():
        torch.addmm(BIAS, A, torch.mm(B, torch.mm(B.t(), B)))
    assert not calls


def test_trials_use_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    def loss(name: str) -> float:
        settings = Settings(runs=tmp_path / name, device="cpu", threads=1)
        request = TrialRequest(
            task="text-classification", data="trec-synthetic", model="text-transformer", overrides={"steps": 3}
        )
        trial = TASKS.get(request.task).trial_for(request, settings)
        return float(run_trial(RunDirectory.create(settings.runs, trial), settings)["metrics"]["train/loss"])

    fast = loss("fast")
    assert calls
    assert loss("again") == fast
    calls.clear()
    monkeypatch.setattr(cpu_sgemm, "is_used", lambda: False)
    assert loss("torch") == pytest.approx(fast, rel=1e-5)
    assert not calls
