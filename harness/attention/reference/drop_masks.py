"""Random drop masks for every drop unit; True marks a dropped key.

Sampling has two steps: independent window starts, all with the same probability, then the dilation of each start to
the keys that its window drops. Keys form one flat axis: prefix tokens first, then the grid row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

import torch
from torch import Tensor

from dropbench.harness.attention.reference.philox import (
    UINT32_MAX,
    interleave,
    philox,
    random_halves,
    sample_philox_seed,
)
from dropbench.harness.attention.reference.units import Unit

UNITS: tuple[Unit, ...] = get_args(Unit)
"""All kernels number the units by their index here."""

SPEC_SCHEMA = (
    "Tensor philox_seed, Tensor start_prob, str unit, SymInt window, SymInt[] grid, SymInt num_prefix_tokens, "
    "SymInt stream"
)
"""Arguments that represent a `DropSpec` in a torch custom operation: the result of `DropSpec.flatten`.

The probability is a tensor: for each value of a number, torch.compile would compile the model again.
"""


@dataclass(frozen=True)
class DropSpec:
    """Everything that determines the drop mask of one pass through one attention site, except its shape.

    Attributes:
        unit, window, grid, num_prefix_tokens: as in `sample_drop_mask`.
        start_prob: probability γ of a window start, see `start_prob`.
        philox_seed: 64 bits, a scalar int64 tensor on the CPU.
        stream: distinguishes the sites of a model that share a seed.
    """

    unit: Unit
    start_prob: float
    window: int
    grid: tuple[int, int] | None
    num_prefix_tokens: int
    philox_seed: Tensor
    stream: int = 0

    def flatten(self) -> tuple[Any, ...]:
        """Return the arguments of `SPEC_SCHEMA`."""
        seed, grid = self.philox_seed, list(self.grid or ())
        probability = number_as_tensor(self.start_prob)
        return seed, probability, self.unit, self.window, grid, self.num_prefix_tokens, self.stream


def number_as_tensor(number: float) -> Tensor:
    """Return a number as a scalar float64 tensor on the CPU, by a product: torch.compile (2.13) fixes other numbers."""
    return torch.ones((), dtype=torch.float64, device="cpu") * number


def drop_nothing() -> DropSpec:
    """Return a spec that drops no key."""
    return DropSpec("element", 0.0, 1, None, 0, torch.zeros((), dtype=torch.int64))


def unpack_spec(
    philox_seed: Tensor,
    start_prob: Tensor,
    unit: str,
    window: int,
    grid: list[int],
    num_prefix_tokens: int,
    stream: int,
) -> DropSpec:
    """Return the spec that `DropSpec.flatten` flattened."""
    grid_size = (grid[0], grid[1]) if grid else None
    return DropSpec(cast(Unit, unit), float(start_prob), window, grid_size, num_prefix_tokens, philox_seed, stream)


def sample_spec(
    unit: Unit, ratio: float, window: int, seqlen_k: int, grid: tuple[int, int] | None = None,
    num_prefix_tokens: int = 0, *, stream: int = 0,
) -> DropSpec:  # fmt: skip
    """Return a spec with a new seed from torch's default CPU generator, regardless of the device.

    Raises:
        ValueError: block or cross without a grid, or with a grid that does not match the number of keys.
    """
    if unit in ("block", "cross") and (grid is None or grid[0] * grid[1] + num_prefix_tokens != seqlen_k):
        raise ValueError(
            f"unit '{unit}' needs the grid of the {seqlen_k} keys, got grid {grid} and prefix {num_prefix_tokens}"
        )
    probability = start_prob(unit, ratio, window, grid)
    return DropSpec(unit, probability, window, grid, num_prefix_tokens, sample_philox_seed(), stream)


def drop_mask(spec: DropSpec, shape: tuple[int, int, int, int], device: torch.device | None = None) -> Tensor:
    """Return the drop mask of a spec, shaped as by `sample_drop_mask`, computed in torch operations."""
    mask: Tensor = torch.ops.dropbench.drop_mask(*spec.flatten(), list(shape), device or torch.device("cpu"))
    return mask


# One opaque operation: torch.compile (2.13) generates invalid C++ for these operations on integers and booleans.
@torch.library.custom_op(
    "dropbench::drop_mask", mutates_args=(), schema=f"({SPEC_SCHEMA}, SymInt[] shape, Device device) -> Tensor"
)
def _drop_mask(*arguments: Any) -> Tensor:
    *flat_spec, (batch, heads, seqlen_q, seqlen_k), device = arguments
    spec = unpack_spec(*flat_spec)
    shape = batch, heads, 1 if spec.unit == "column" else seqlen_q, seqlen_k
    threshold = start_threshold(spec.philox_seed, spec.stream, spec.start_prob)
    halves = random_halves(spec.philox_seed, spec.stream, shape, device)
    starts = interleave([half < threshold for half in halves], shape)
    return dilate(spec.unit, starts, spec.window, grid=spec.grid, num_prefix_tokens=spec.num_prefix_tokens)


@_drop_mask.register_fake
def _(*arguments: Any) -> Tensor:
    _, _, unit, *_, shape, device = arguments
    batch, heads, seqlen_q, seqlen_k = shape
    rows = 1 if unit == "column" else seqlen_q
    return torch.empty(batch, heads, rows, seqlen_k, dtype=torch.bool, device=device)


@_drop_mask.register_vmap
def _(_info: Any, in_dims: tuple[Any, ...], philox_seed: Tensor, *arguments: Any) -> tuple[Tensor, int]:
    seeds = philox_seed.unbind(in_dims[0])  # each sample has its own with `randomness="different"`
    return torch.stack([torch.ops.dropbench.drop_mask(seed, *arguments) for seed in seeds]), 0


def sample_drop_mask(
    unit: Unit, ratio: float, window: int, shape: tuple[int, int, int, int], *, grid: tuple[int, int] | None = None,
    num_prefix_tokens: int = 0, device: torch.device | None = None,
) -> Tensor:  # fmt: skip
    """Sample a drop mask, True where a key is dropped.

    - element: each (query, key) pair independently. column: one decision per key for all queries of a sample and head.
      With window w each start drops w keys, itself and those to its right (DropAttention, Section 4.1, Algorithm 1).
    - block: each start drops an s × s window of the key grid. cross: each start drops s full rows and s full columns
      (DropKey, Section 3.2, "Structured DropKey"). Both are sampled per query, as in DropKey, and never drop prefix
      tokens.

    `ratio` is d or p in the papers. For window 1 (except cross) every key is dropped with that probability. Otherwise
    it is an upper bound of the fraction of dropped keys, because windows overlap and, in sequences, are truncated at
    the end. `start_prob` implements the papers' formulas; docs/regularizers.md lists the exact fractions.

    Args:
        unit: drop unit.
        ratio: drop ratio in [0, 1).
        window: window size w or s, in tokens; s is at most the shorter side of the grid.
        shape: (B, H, T, S).
        grid: rows and columns of the key grid; required for block and cross.
        num_prefix_tokens: key tokens before the grid.
        device: device of the mask.

    Returns:
        boolean, (B, H, T, S), or (B, H, 1, S) for columns.

    Raises:
        ValueError: block or cross without a grid, or with a grid that does not match the number of keys.
    """
    spec = sample_spec(unit, ratio, window, shape[-1], grid=grid, num_prefix_tokens=num_prefix_tokens)
    return drop_mask(spec, shape, device)


def start_prob(unit: Unit, ratio: float, window: int, grid: tuple[int, int] | None = None) -> float:
    """Return the probability γ that a valid key is a window start.

    - element, column: γ = p / w (DropAttention, Algorithm 1, line 4).
    - block: d / s² · n_h·n_w / ((n_h − s + 1)(n_w − s + 1)); cross: d / (s(n_h + n_w − s)) · the same (DropKey,
      Section 3.2). Neither exceeds d.

    Raises:
        ValueError: block or cross without a grid.
    """
    if unit in ("element", "column"):
        return ratio / window
    grid_h, grid_w, side = _grid_and_side(unit, window, grid)
    area = side * side if unit == "block" else side * (grid_h + grid_w - side)
    return ratio / area * (grid_h * grid_w) / ((grid_h - side + 1) * (grid_w - side + 1))


def dilate(
    unit: Unit, starts: Tensor, window: int, *, grid: tuple[int, int] | None = None, num_prefix_tokens: int = 0
) -> Tensor:
    """Dilate window starts to the keys that they drop.

    For block and cross only valid starts count: those whose window fits in the grid, with the start as its upper left
    corner. Windows are truncated at the end of a sequence (DropAttention, Algorithm 1, line 6).

    `starts` is boolean, (…, S); so is the result, True where dropped. Other arguments as in `sample_drop_mask`.

    Raises:
        ValueError: block or cross without a grid.
    """
    if unit in ("element", "column"):
        return _dilate_right(starts, window)
    grid_h, grid_w, side = _grid_and_side(unit, window, grid)
    # Rows and columns separately: with positions on one flat axis, compiled code repeats a division per key.
    rows, columns = (torch.arange(size, device=starts.device) <= size - side for size in (grid_h, grid_w))
    valid = (rows[:, None] & columns).flatten()
    starts = starts & torch.cat([valid.new_zeros(num_prefix_tokens), valid])
    if unit == "block":
        # A valid window never crosses the end of its row, so dilation along the flat axis is correct.
        return _dilate_right(_dilate_right(starts, side), side, step=grid_w)
    cells = starts[..., num_prefix_tokens:].unflatten(-1, (grid_h, grid_w)).to(torch.uint8)
    dropped_rows, dropped_columns = _dilate_right(cells.amax(-1), side), _dilate_right(cells.amax(-2), side)
    crosses = (dropped_rows[..., :, None] | dropped_columns[..., None, :]).flatten(-2).bool()
    return torch.cat([starts[..., :num_prefix_tokens], crosses], dim=-1)


def _grid_and_side(unit: Unit, window: int, grid: tuple[int, int] | None) -> tuple[int, int, int]:
    """Return the grid's rows and columns, and the window's side, which is at most the shorter of them."""
    if grid is None:
        raise ValueError(f"unit '{unit}' needs the grid of the keys")
    return *grid, min(window, *grid)


def _dilate_right(starts: Tensor, window: int, step: int = 1) -> Tensor:
    """Set each start and the `window` − 1 positions at multiples of `step` to its right, along the last axis."""
    dilated = starts.clone() if window > 1 else starts
    for shift in range(step, min(window * step, starts.shape[-1]), step):
        dilated[..., shift:] |= starts[..., :-shift]
    return dilated


def start_threshold(philox_seed: Tensor | int, stream: int, probability: float) -> Tensor | int:
    """Return the threshold, 0 to 2¹⁶, below which a key's 16 random bits make it a window start.

    The probability is not rounded: one of the two thresholds around it is sampled per spec, such that each decision
    has exactly `probability`. This is the only correlation between two decisions of a spec, with a covariance of at
    most 2⁻³⁴. The result has the type of `philox_seed`.
    """
    exact = probability * 2**16
    lower = int(exact)
    # The counter of a block that no key uses.
    word = philox((UINT32_MAX, UINT32_MAX, UINT32_MAX, stream), philox_seed)[0]
    return lower + (word < round((exact - lower) * 2**32))
