"""Every backend is the same function of the same random bits as torch's own operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from harness import drop_attention
from harness.attention import attend
from harness.backends import KINDS, Backend, backend, chosen, used
from harness.errors import InputError
from harness.kernels import columns, library, pieces, reason
from harness.kernels.masks import ROOMS, Rooms
from harness.masks import drawn_keys, new_draw
from harness.regularizers.drop import Rescale, Unit
from harness.regularizers.spec import build_regularizer
from harness.settings import BACKENDS, Settings
from harness.site import Site

needs_compiler = pytest.mark.skipif(library("masks") is None, reason=f"no kernels: {reason('masks')}")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

ROOT = Path(__file__).parents[2]
KERNELS = "forward", "backward_queries", "backward_keys"
MASKS = ("none", "padding", "rows", "additive")


class Place(NamedTuple):
    unit: Unit
    window: int = 1
    grid: tuple[int, int] | None = None
    prefix: int = 0
    keys: int = 65


PLACES = [
    Place("element"), Place("element", 5), Place("column", 2), Place("block", 3, (7, 9), 2),
    Place("block", 2, (3, 40), 0, 120), Place("cross", 1, (7, 9), 2),
]  # fmt: skip
LONG = Place("column", 2, keys=260)
"""Whose kept keys are moved together: that costs less than a mask."""
BOTH: list[tuple[Place, Rescale]] = [
    *((place, "renormalize") for place in PLACES),
    *((place, "inverse") for place in PLACES if place.unit != "column"),  # which torch drops from the values
]


class Case:
    """Inputs of one call, and what it gives by a backend."""

    def __init__(
        self, place: Place, rescale: Rescale, kind: str = "none", *, causal: bool = False, queries: int = 40,
        dtype: torch.dtype = torch.float32, ratio: float = 0.4, size: int = 16, transposed: bool = True,
        shape: tuple[int, int] = (3, 2),
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        keys = place.keys
        self.q, self.k, self.v = (
            (torch.randn(shape[0], n, shape[1], size).transpose(1, 2) if transposed else torch.randn(*shape, n, size))
            .to(dtype)
            .requires_grad_()
            for n in (queries, keys, keys)
        )
        self.grad = torch.randn(*shape, queries, size).to(dtype)
        self.rescale, self.ratio, self.causal = rescale, ratio, causal
        self.mask = self._mask(kind, shape[0], queries, keys, dtype)
        self.draw = new_draw(
            place.unit, ratio, place.window, keys, grid=place.grid, prefix=place.prefix, stream=3
        )  # fmt: skip

    @staticmethod
    def _mask(kind: str, batch: int, queries: int, keys: int, dtype: torch.dtype) -> Tensor | None:
        if kind == "padding":
            lengths = torch.linspace(1, keys, batch).long()
            return torch.arange(keys)[None, None, None] < lengths[:, None, None, None]
        if kind == "rows":
            allowed = torch.rand(batch, 1, queries, keys) < 0.5
            allowed[0, 0, 0] = False
            return allowed
        if kind == "additive":
            return torch.randn(1, queries, keys).masked_fill(torch.rand(queries, keys) < 0.3, -1e4).to(dtype)
        return None

    def by(self, name: Backend) -> list[Tensor]:
        """The output and the gradients of q, k and v."""
        with backend(name):
            assert chosen(self.q, self.k, self.v, self.draw, self.rescale, self.mask) == name
            out = drop_attention.drop_attention(
                self.q, self.k, self.v, self.draw, self.rescale, self.ratio, mask=self.mask, causal=self.causal
            )
        return [out.detach(), *torch.autograd.grad(out, (self.q, self.k, self.v), self.grad)]

    def check(self, name: Backend, tolerance: float = 5e-5) -> None:
        """Both the same, to rounding."""
        for found, expected in zip(self.by(name), self.by("eager"), strict=True):
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["stored", "pieces", "small pieces"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that are stored, and that are made again, for some heads or some rows at a time; columns left out."""
    if request.param != "stored":
        monkeypatch.setattr(drop_attention, "STORED", 0)
        monkeypatch.setattr(drop_attention, "worth_moving", lambda *_: True)
    if request.param == "small pieces":
        monkeypatch.setattr(pieces, "CACHE", 2**10)
        monkeypatch.setattr(pieces, "FEWEST_ROWS", 16)


@needs_compiler
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize(("place", "rescale"), BOTH, ids=str)
def test_cpu(place: Place, rescale: Rescale, causal: bool, kind: str) -> None:
    Case(place, rescale, kind, causal=causal).check("cpu")
    Case(place, rescale, kind, causal=causal, transposed=False, ratio=0.9).check("cpu")


@needs_compiler
@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_cpu_in_other_dtypes(dtype: torch.dtype) -> None:
    tolerance = 5e-5 if dtype == torch.float64 else 2e-2
    Case(PLACES[0], "renormalize", "additive", dtype=dtype).check("cpu", tolerance)
    Case(LONG, "renormalize", "padding", dtype=dtype, queries=200, shape=(5, 6)).check("cpu", tolerance)


@needs_compiler
@pytest.mark.parametrize("place", ["k", "v"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_columns_that_are_left_out_hide_nothing(dtype: torch.dtype, number: float, place: str) -> None:
    """What is infinite or no number comes through a weight of 0, as in plain attention."""
    case = Case(LONG, "renormalize", dtype=dtype, queries=200, shape=(5, 6))
    lost = int(drawn_keys(case.draw, (5, 6, 1, LONG.keys))[3, 1, 0].nonzero()[0])
    assert not case.by("cpu")[0].isnan().any()
    with torch.no_grad():
        getattr(case, place)[3, 1, lost, 0] = number
    found, expected = case.by("cpu")[0], case.by("eager")[0]
    assert torch.equal(found.isnan(), expected.isnan())
    assert found.isnan().any()


@needs_compiler
def test_columns_that_are_left_out_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more keys than the head that has kept the most, and those of one vector."""
    lengths = []
    moved = columns._moved

    def noted(tensor: Tensor, keys: Tensor, count: int, to: Tensor) -> tuple[Tensor, bool]:
        lengths.append(count)
        return moved(tensor, keys, count, to)

    monkeypatch.setattr(columns, "_moved", noted)
    case = Case(LONG, "renormalize", queries=200, shape=(5, 6))
    case.check("cpu")
    most = int((~drawn_keys(case.draw, (5, 6, 1, LONG.keys))).sum(-1).max())
    assert lengths == [lengths[0]] * 4 + [LONG.keys] * 2, "forward and backward move keys and values, then gradients"
    assert most <= lengths[0] < most + columns.TOGETHER < LONG.keys


TRITON: list[Callable[[], Case]] = [
    lambda: Case(Place("element"), "renormalize", ratio=0.9, shape=(1, 2)),
    lambda: Case(Place("element", 3), "renormalize", "padding", shape=(2, 1)),
    lambda: Case(Place("element", 33, keys=130), "inverse", "additive", shape=(1, 1)),
    lambda: Case(Place("column", 2), "renormalize", "rows", causal=True, shape=(1, 2)),
    lambda: Case(Place("column"), "inverse", "padding", shape=(1, 2)),
    lambda: Case(Place("block", 3, (7, 9), 2), "renormalize", shape=(1, 1)),
    lambda: Case(Place("block", 4, (5, 40), 1, 201), "inverse", ratio=0.2, shape=(1, 1)),
    lambda: Case(Place("element"), "inverse", causal=True, size=24, shape=(1, 1)),
]
"""Each kind of mask, unit and rescale once, as the interpreter takes seconds for one; 130 rows are two blocks."""


@needs_triton
@pytest.mark.parametrize("number", range(len(TRITON)))
def test_triton(number: int) -> None:
    TRITON[number]().check("triton")


@needs_triton
def test_triton_in_half_precision() -> None:
    Case(Place("element"), "renormalize", "additive", dtype=torch.float16, shape=(1, 1)).check("triton", 1e-2)


@needs_triton
def test_triton_where_there_is_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks become smaller until they fit."""
    from triton.runtime.errors import OutOfResources

    from harness.kernels import fused

    asked: list[int] = []

    class Small:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            def launched(*given: Any, **options: Any) -> None:
                asked.append(max(options["M"], options["N"]))
                if asked[-1] > 32:
                    raise OutOfResources(10**6, 10**5, "shared memory")
                self.kernel[grid](*given, **options)

            return launched

    for name in KERNELS:
        monkeypatch.setattr(fused, name, Small(getattr(fused, name)))
    Case(Place("element"), "renormalize", shape=(1, 1)).check("triton")
    assert asked == [64, 32] * 3


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "capability", "most"),
    [
        (("bfloat16", "64", "element", "renormalize"), 86, 99),
        (("float32", "64", "element", "inverse"), 86, 99),
        (("float16", "128", "column", "renormalize"), 80, 163),
    ],
    ids=str,
)
def test_the_gpus_compiler_takes_the_kernels(what: tuple[str, ...], capability: int, most: int, tmp_path: Path) -> None:
    """For GPUs of these kinds, which have so many KiB of shared memory for a block; none is needed for it."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.harness.compile_kernels", *what, str(capability)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**env, "TRITON_CACHE_DIR": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found) == set(KERNELS)
    assert 0 < max(found.values()) <= most * 1024


def site(name: str = "dropkey", **params: int) -> Site:
    made = Site("layer", "encoder-self", 0, 1, 2)
    made.regularizer, made.ratio = build_regularizer(name, ratio=0.3, **params), 0.3
    return made


@needs_compiler
@pytest.mark.parametrize("name", ["dropkey", "dropout", "dropattention-e", "dropattention-c"])
def test_attend_is_the_same_by_all(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 8) for n in (5, 30, 30))
    found = []
    for one in ("cpu", "eager"):
        with backend(one):
            torch.manual_seed(1)
            found.append([attend(q, k, v, site(name), training=True) for _ in range(2)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(found[0][0], found[0][1])


def test_by_itself_it_is_what_the_device_has() -> None:
    case = Case(PLACES[0], "renormalize")
    expected = "eager" if library("masks") is None else "cpu"
    assert chosen(case.q, case.k, case.v, case.draw, "renormalize", None) == expected


def test_what_a_backend_cannot_do_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(PLACES[0], "renormalize", "additive")
    assert case.mask is not None
    flowing = case.mask.clone().requires_grad_()
    asked = case.q, case.k, case.v, case.draw
    assert chosen(*asked, "renormalize", flowing) == "eager"
    out = drop_attention.drop_attention(*asked, "renormalize", 0.4, mask=flowing)
    assert torch.autograd.grad(out.sum(), flowing)[0].abs().sum() > 0
    with backend("triton"):
        monkeypatch.setattr("harness.kernels.launch.interpreted", lambda: False)
        assert chosen(*asked, "renormalize", None) == "eager"


def test_an_unknown_backend_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_BACKEND", "eagre")
    with pytest.raises(InputError, match=r"unknown backend 'eagre'.*eager"):
        Settings.from_environment()
    assert Settings.from_environment(backend="cpu").backend == "cpu"
    monkeypatch.setenv("DROPBENCH_BACKEND", "eager")
    assert Settings.from_environment().backend == "eager"
    assert set(BACKENDS) == {"auto", *KINDS}


@needs_compiler
def test_asking_ends_where_it_ends() -> None:
    case = Case(PLACES[0], "renormalize")
    asked = case.q, case.k, case.v, case.draw
    with backend("eager"):
        with backend("cpu"):
            assert chosen(*asked, "renormalize", None) == "cpu"
        with backend("auto"):
            assert chosen(*asked, "renormalize", None) == "cpu"
        assert chosen(*asked, "renormalize", None) == "eager"
        assert used() == ["cpu", "eager"]


@needs_compiler
def test_nothing_of_the_square_of_the_tokens_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 tokens of two heads: a mask would take 128 MiB."""
    case = Case(Place("element", keys=4096), "renormalize", queries=4096, shape=(1, 2))
    taken: list[int] = []
    take = ROOMS.take

    def noted(cells: int) -> Tensor:
        taken.append(cells)
        return take(cells)

    monkeypatch.setattr(ROOMS, "take", noted)
    case.by("cpu")
    assert 0 < max(taken) <= 2 * pieces.FEWEST_ROWS * 4096


@needs_compiler
def test_rooms_are_used_again() -> None:
    rooms = Rooms()
    first = rooms.take(rooms.SMALL)
    where = first.data_ptr()
    second = rooms.take(rooms.SMALL)
    assert second.data_ptr() != where
    view = first[10:]
    del first
    assert rooms.take(rooms.SMALL).data_ptr() != where, "while a part of it is in use it is nobody else's"
    del view
    assert rooms.take(rooms.SMALL).data_ptr() == where


@needs_compiler
@pytest.mark.parametrize("rescale", ["renormalize", "inverse"])
def test_a_nan_reaches_what_it_reaches_without(rescale: Rescale, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_attention, "STORED", 0)
    case = Case(PLACES[0], rescale)
    with torch.no_grad():
        case.q[0, 0, 3, 2] = torch.nan
        case.v[1, 1, 5, 0] = torch.nan
    found, expected = case.by("cpu")[0], case.by("eager")[0]
    assert torch.equal(found.isnan(), expected.isnan())
    assert found.isnan().any()


@needs_compiler
@pytest.mark.parametrize(
    ("place", "rescale"), [(PLACES[0], "renormalize"), (PLACES[0], "inverse"), (LONG, "renormalize")], ids=str
)
def test_under_compile(place: Place, rescale: Rescale) -> None:
    """One graph, without a break."""
    case = Case(place, rescale, queries=200, shape=(5, 6))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return drop_attention.drop_attention(q, k, v, case.draw, rescale, 0.4) * 2

    expected = call(case.q, case.k, case.v)
    torch.testing.assert_close(
        torch.compile(call, fullgraph=True, backend="aot_eager")(case.q, case.k, case.v), expected
    )


@needs_compiler
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("place", [PLACES[0], LONG], ids=str)
def test_compilers_are_told_the_truth(place: Place, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, strides and dtypes of what either pass gives, which a compiler relies upon."""
    monkeypatch.setattr(drop_attention, "STORED", 0)
    case = Case(place, "renormalize", queries=200, shape=(5, 6), transposed=transposed)
    q, k, v = (tensor.detach() for tensor in (case.q, case.k, case.v))
    draw = case.draw
    rest: Any = None, draw.key, "cpu", draw.unit, draw.probability, draw.window, [], 0, 3, None, False, 0.25
    check: Any = torch.library.opcheck
    check(torch.ops.dropbench.drop_attention.default, (q, k, v, *rest), test_utils="test_faketensor")
    found = torch.ops.dropbench.drop_attention(q, k, v, *rest)
    given = case.grad, *found, q, k, v, *rest
    check(torch.ops.dropbench.drop_attention_backward.default, given, test_utils="test_faketensor")
