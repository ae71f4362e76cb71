"""Random bits by place: the generator's published figures, its quality along every axis, and the kernel in C."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

from harness import kernels
from harness.dropping import kept_mask
from harness.kernels import library, reason
from harness.kernels import masks as module
from harness.kernels.masks import MaskFiller
from harness.masks import Draw, drawn_keys, new_draw, seed_threshold
from harness.philox import WORD, halfwords, philox
from harness.regularizers.drop import Unit

KNOWN = [
    (7, (0, 0, 0, 0), 0, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (10, (0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (10, (WORD, WORD, WORD, WORD), 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (10, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""Rounds, counter, key and block: the known answers that Random123, the generator's own library, is tested by."""

needs_compiler = pytest.mark.skipif(library("masks") is None, reason=f"no kernels: {reason('masks')}")


@pytest.mark.parametrize(("rounds", "counter", "key", "block"), KNOWN)
def test_known_answers(rounds: int, counter: tuple[int, int, int, int], key: int, block: str) -> None:
    expected = [int(word, 16) for word in block.split()]
    assert list(philox(counter, key, rounds)) == expected
    signed = key - 2**64 if key >= 2**63 else key
    words = [torch.tensor(word) for word in counter]
    assert [int(word) for word in philox(tuple(words), torch.tensor(signed), rounds)] == expected  # type: ignore[arg-type]


def bits(key: int, stream: int, shape: tuple[int, int, int, int]) -> Tensor:
    return halfwords(torch.tensor(key), stream, shape, None)


def test_uniform() -> None:
    found = bits(1, 0, (8, 8, 64, 256)).flatten()
    counts = torch.bincount(found >> 8, minlength=256).double()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    counts = torch.bincount(found & 255, minlength=256).double()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("distance", [1, 2, 7, 8])
def test_neighbours_along_every_axis_are_independent(axis: int, distance: int) -> None:
    dropped = (bits(2, 3, (16, 16, 64, 64)) < 2**15).movedim(axis, 0)
    pairs = torch.stack([dropped[:-distance].flatten(), dropped[distance:].flatten()])
    table = torch.bincount(2 * pairs[0].long() + pairs[1].long(), minlength=4).view(2, 2)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_keys_and_streams_are_independent() -> None:
    """Neighbouring keys, keys that differ in one bit, and neighbouring places of a model."""
    shape = 4, 4, 64, 128
    first = bits(5, 0, shape) < 2**15
    others = [bits(5 ^ 1 << place, 0, shape) for place in (0, 1, 31, 32, 62)]
    others += [bits(6, 0, shape), *(bits(5, stream, shape) for stream in (1, 2, 12))]
    for other in others:
        table = torch.bincount(2 * first.flatten().long() + (other < 2**15).flatten().long(), minlength=4).view(2, 2)
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_a_decision_does_not_depend_on_how_many_there_are() -> None:
    whole = bits(9, 4, (3, 2, 7, 40))
    assert torch.equal(whole[:2, :, :5, :13], bits(9, 4, (2, 2, 5, 13)))


@pytest.mark.parametrize("probability", [0.0, 1e-6, 0.3, 1 / 3, 0.5, 1 - 2**-17, 1.0])
def test_thresholds_average_to_the_probability(probability: float) -> None:
    found = [seed_threshold(key, 0, probability) for key in range(4000)]
    assert {*found} <= {int(probability * 2**16), int(probability * 2**16) + 1}
    mean = sum(map(int, found)) / len(found) / 2**16
    assert mean == pytest.approx(probability, abs=4 * 0.5 / 2**16 / len(found) ** 0.5)
    assert int(seed_threshold(torch.tensor(17), 3, probability)) == seed_threshold(17, 3, probability)


PLACES: list[tuple[Unit, int, tuple[int, int] | None, int, int]] = [
    ("element", 1, None, 0, 197), ("element", 3, None, 0, 64), ("element", 100, None, 0, 300),
    ("element", 1, None, 0, 1),
    ("column", 2, None, 0, 70),
    ("block", 3, (14, 14), 1, 197), ("block", 5, (9, 7), 0, 63), ("block", 9, (4, 6), 3, 27),
    ("cross", 1, (14, 14), 1, 197), ("cross", 2, (5, 8), 2, 42),
]  # fmt: skip
"""Unit, window, grid, prefix, keys."""


def masks(keys: int, queries: int) -> dict[str, Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    allowed = torch.rand(2, 1, queries, keys, generator=generator) < 0.7
    allowed[0, 0, 0] = False
    added = torch.randn(3, queries, keys, generator=generator).masked_fill(~allowed[:1, 0], float("-inf"))
    padding = torch.zeros(2, 1, 1, keys, dtype=torch.bool)
    padding[..., : max(1, keys // 2)] = True
    return {
        "none": None,
        "boolean": allowed,
        "padding": padding,
        "additive": added,
        "transposed": added.mT.contiguous().mT,
    }


def filled(draw: Draw, shape: tuple[int, int, int, int], mask: Tensor | None = None, rows: int | None = None) -> Tensor:
    """The kernel's mask of (B, H, T, S), `rows` at a time."""
    batch, heads, queries, keys = shape
    parts = []
    for row in range(0, queries, rows or queries):
        part = torch.full((batch * heads, min(rows or queries, queries - row), keys), torch.nan)
        MaskFiller(draw, shape, mask).fill(part, 0, row)
        parts.append(part)
    return torch.cat(parts, dim=1).view(shape)


@needs_compiler
@pytest.mark.parametrize("kind", masks(4, 4))
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("ratio", [0.05, 0.6, 0.97])
def test_the_kernel_draws_what_torch_draws(
    place: tuple[Unit, int, tuple[int, int] | None, int, int], kind: str, ratio: float
) -> None:
    unit, window, grid, prefix, keys = place
    torch.manual_seed(keys)
    draw = new_draw(unit, ratio, window, keys, grid=grid, prefix=prefix, stream=5)
    shape, mask = (2, 3, 6, keys), masks(keys, 6)[kind]
    expected = kept_mask(~drawn_keys(draw, shape), mask, torch.float32).expand(shape)
    assert torch.equal(filled(draw, shape, mask), expected)
    assert torch.equal(filled(draw, shape, mask, rows=4), expected)
    # One place, from the middle of the others.
    part = torch.empty(1, 6, keys)
    MaskFiller(draw, shape, mask).fill(part, 4, 0)
    assert torch.equal(part[0], expected[1, 1])


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads: int) -> None:
    draw = Draw("element", 0.3, 1, None, 0, torch.tensor(-3))
    shape = 4, 4, 128, 200
    before = torch.get_num_threads()
    expected = filled(draw, shape)
    try:
        torch.set_num_threads(threads)
        assert torch.equal(filled(draw, shape), expected)
    finally:
        torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("flags", [("-mavx2", "-mfma"), ()], ids=["AVX2", "no vectors"])
def test_processors_with_less_draw_the_same(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is built for the processor that it runs on; those of others are built here."""
    found = Path("/proc/cpuinfo")
    if flags and (not found.exists() or "avx2" not in found.read_text().split()):
        pytest.skip("this processor has no AVX2")
    draws = [
        Draw(unit, 0.3, window, grid, prefix, torch.tensor(11), 2) for unit, window, grid, prefix, _ in PLACES
    ]  # fmt: skip
    shapes = [(1, 2, 5, keys) for *_, keys in PLACES]
    expected = [filled(draw, shape) for draw, shape in zip(draws, shapes, strict=True)]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "FLAGS", tuple(f for f in kernels.FLAGS if f != "-march=native") + flags)
    try:
        for one in (kernels.library, module._kernel):
            one.cache_clear()
        assert kernels.reason("masks") == ""
        assert len(list(tmp_path.rglob("masks-*.so"))) == 1
        for draw, shape, whole in zip(draws, shapes, expected, strict=True):
            assert torch.equal(filled(draw, shape), whole)
    finally:
        for one in (kernels.library, module._kernel):
            one.cache_clear()


def test_no_two_passes_draw_alike() -> None:
    torch.manual_seed(0)
    shape = 1, 1, 64, 64
    found = [drawn_keys(new_draw("element", 0.5, 1, 64), shape) for _ in range(3)]
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(found, 2))
    torch.manual_seed(0)
    assert torch.equal(drawn_keys(new_draw("element", 0.5, 1, 64), shape), found[0])
