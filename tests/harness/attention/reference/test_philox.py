"""Random bits by position: Philox's published test vectors, independence along every axis, and the C kernel."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

from dropbench.harness.attention.kernels import c_library
from dropbench.harness.attention.kernels.cpu_fused import FusedAttention
from dropbench.harness.attention.reference.drop_masks import DropSpec, drop_mask, sample_spec, start_threshold
from dropbench.harness.attention.reference.eager import merge_keep_mask
from dropbench.harness.attention.reference.philox import UINT32_MAX, interleave, philox, random_halves
from dropbench.harness.attention.reference.sdpa import masked_softmax
from dropbench.harness.attention.reference.units import Unit
from tests.covering import each_pair
from tests.harness.attention.attention_case import needs_compiler

VECTORS = [
    (7, (0, 0, 0, 0), 0, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (10, (0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (10, (UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX), 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (10, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""Rounds, counter, seed and block: the test vectors of Random123, the generator's reference library."""


@pytest.mark.parametrize(("rounds", "counter", "seed", "block"), VECTORS)
def test_published_vectors(rounds: int, counter: tuple[int, int, int, int], seed: int, block: str) -> None:
    expected = [int(word, 16) for word in block.split()]
    assert list(philox(counter, seed, rounds)) == expected
    signed = seed - 2**64 if seed >= 2**63 else seed
    words = [torch.tensor(word) for word in counter]
    assert [int(word) for word in philox(tuple(words), torch.tensor(signed), rounds)] == expected  # type: ignore[arg-type]


def bits(seed: int, stream: int, shape: tuple[int, int, int, int]) -> Tensor:
    return interleave(random_halves(torch.tensor(seed), stream, shape, None), shape)


def test_uniform() -> None:
    values = bits(1, 0, (8, 8, 64, 256)).flatten()
    counts = torch.bincount(values >> 8, minlength=256).double()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    counts = torch.bincount(values & 255, minlength=256).double()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("distance", [1, 2, 7, 8])
def test_neighbors_along_every_axis_are_independent(axis: int, distance: int) -> None:
    dropped = (bits(2, 3, (16, 16, 64, 64)) < 2**15).movedim(axis, 0)
    pairs = torch.stack([dropped[:-distance].flatten(), dropped[distance:].flatten()])
    table = torch.bincount(2 * pairs[0].long() + pairs[1].long(), minlength=4).view(2, 2)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_seeds_and_streams_are_independent() -> None:
    """Consecutive seeds, seeds that differ in one bit, and other streams."""
    shape = 4, 4, 64, 128
    first = bits(5, 0, shape) < 2**15
    others = [bits(5 ^ 1 << bit, 0, shape) for bit in (0, 1, 31, 32, 62)]
    others += [bits(6, 0, shape), *(bits(5, stream, shape) for stream in (1, 2, 12))]
    for other in others:
        table = torch.bincount(2 * first.flatten().long() + (other < 2**15).flatten().long(), minlength=4).view(2, 2)
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_a_decision_does_not_depend_on_the_shape() -> None:
    whole = bits(9, 4, (3, 2, 7, 40))
    assert torch.equal(whole[:2, :, :5, :13], bits(9, 4, (2, 2, 5, 13)))


@pytest.mark.parametrize("probability", [0.0, 1e-6, 0.3, 1 / 3, 0.5, 1 - 2**-17, 1.0])
def test_thresholds_average_to_the_probability(probability: float) -> None:
    thresholds = [start_threshold(seed, 0, probability) for seed in range(4000)]
    assert {*thresholds} <= {int(probability * 2**16), int(probability * 2**16) + 1}
    mean = sum(map(int, thresholds)) / len(thresholds) / 2**16
    assert mean == pytest.approx(probability, abs=4 * 0.5 / 2**16 / len(thresholds) ** 0.5)
    assert int(start_threshold(torch.tensor(17), 3, probability)) == start_threshold(17, 3, probability)


DROPS: list[tuple[Unit, int, tuple[int, int] | None, int, int]] = [
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
    bias = torch.randn(3, queries, keys, generator=generator).masked_fill(~allowed[:1, 0], float("-inf"))
    padding = torch.zeros(2, 1, 1, keys, dtype=torch.bool)
    padding[..., : max(1, keys // 2)] = True
    return {
        "none": None,
        "boolean": allowed,
        "padding": padding,
        "additive": bias,
        "transposed": bias.mT.contiguous().mT,
    }


def compiled_weights(
    spec: DropSpec, shape: tuple[int, int, int, int], mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Return the weights (B, H, T, S) of the C kernel for queries of 0: the softmax of the mask over the kept keys."""
    batch, heads, seqlen_q, seqlen_k = shape
    q, k = torch.zeros(batch, heads, seqlen_q, 1), torch.zeros(batch, heads, seqlen_k, 1)
    v = torch.eye(seqlen_k).expand(batch, heads, -1, -1)
    out, _, _ = FusedAttention(q, k, v, mask, spec, None, causal=causal, scale=1.0).forward()
    return out


@needs_compiler
@each_pair(kind=[*masks(4, 4)], drop=DROPS, ratio=[0.05, 0.6, 0.97])
def test_the_kernel_equals_torch_operations(
    drop: tuple[Unit, int, tuple[int, int] | None, int, int], kind: str, ratio: float
) -> None:
    unit, window, grid, prefix, keys = drop
    torch.manual_seed(keys)
    spec = sample_spec(unit, ratio, window, keys, grid=grid, num_prefix_tokens=prefix, stream=5)
    shape, mask = (2, 3, 6, keys), masks(keys, 6)[kind]
    expected = merge_keep_mask(~drop_mask(spec, shape), mask, torch.float32).expand(shape)
    weights = compiled_weights(spec, shape, mask)
    assert torch.equal(weights > 0.0, expected.isfinite())
    torch.testing.assert_close(weights, masked_softmax(expected))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("flags", [("-mavx2", "-mfma"), ()], ids=["AVX2", "plain C"])
def test_other_instruction_sets_generate_the_same_mask(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is built for the local CPU; this builds it for CPUs with fewer instructions."""
    cpuinfo = Path("/proc/cpuinfo")
    if flags and (not cpuinfo.exists() or "avx2" not in cpuinfo.read_text().split()):
        pytest.skip("this CPU has no AVX2")
    specs = [
        DropSpec(unit, 0.3, window, grid, prefix, torch.tensor(11), 2) for unit, window, grid, prefix, _ in DROPS
    ]  # fmt: skip
    shapes = [(1, 2, 5, keys) for *_, keys in DROPS]
    expected = [compiled_weights(spec, shape) for spec, shape in zip(specs, shapes, strict=True)]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(c_library, "FLAGS", tuple(f for f in c_library.FLAGS if f != "-march=native") + flags)
    try:
        for cached in (c_library.load_library, c_library.load_function):
            cached.cache_clear()
        assert c_library.build_error("cpu_fused") == ""
        assert len(list(tmp_path.rglob("cpu_fused-*.so"))) == 1
        for spec, shape, mask in zip(specs, shapes, expected, strict=True):
            assert torch.equal(compiled_weights(spec, shape), mask)
    finally:
        for cached in (c_library.load_library, c_library.load_function):
            cached.cache_clear()


def test_every_pass_has_its_own_mask() -> None:
    torch.manual_seed(0)
    shape = 1, 1, 64, 64
    samples = [drop_mask(sample_spec("element", 0.5, 1, 64), shape) for _ in range(3)]
    assert all(not torch.equal(first, second) for first, second in itertools.combinations(samples, 2))
    torch.manual_seed(0)
    assert torch.equal(drop_mask(sample_spec("element", 0.5, 1, 64), shape), samples[0])
