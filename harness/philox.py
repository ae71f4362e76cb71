"""Random bits that are a pure function of where they are used: Philox 4x32 with 7 rounds (Salmon et al. 2011).

"Parallel random numbers: as easy as 1, 2, 3", SC'11: counter-based, and crush-resistant from 7 rounds on. A block of
128 bits makes eight decisions of 16 bits. In torch's operations, for any device and for graphs; ``kernels/masks.c`` is
the same in one pass.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

ROUNDS = 7
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
WORD = 0xFFFFFFFF
"""The bits of a word."""

Bits = TypeVar("Bits", bound=Tensor | int)


def philox(
    counter: tuple[Bits | int, Bits | int, Bits | int, Bits | int], key: Bits, rounds: int = ROUNDS
) -> tuple[Bits, Bits, Bits, Bits]:
    """128 random bits for each counter.

    Args:
        counter: four words of 32 bits, whole numbers or int64 tensors that broadcast.
        key: 64 bits, a whole number or an int64 tensor.
        rounds: 10 in Random123's default generator.

    Returns:
        four words of 32 bits, of the type of what was given.
    """
    first, second = key & WORD, key >> 32 & WORD
    words: tuple[Any, ...] = counter
    a, b, c, d = words
    for _ in range(rounds):
        # Beyond 63 bits a product wraps around; the bits that are taken are right all the same.
        low, high = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (high >> 32 & WORD) ^ b ^ first, high & WORD, (low >> 32 & WORD) ^ d ^ second, low & WORD
        first, second = first + WEYL[0] & WORD, second + WEYL[1] & WORD
    return a, b, c, d


def halfwords(key: Tensor, stream: int, shape: tuple[int, int, int, int], device: torch.device | None) -> Tensor:
    """16 random bits for each place of `shape` (B, H, T, S), as int64.

    The block with counter (j // 8, i, b · H + h, stream) has those of the keys j to j + 7 of query i.
    """
    batch, heads, rows, keys = shape
    columns = torch.arange(-(-keys // 8), device=device)
    places = torch.arange(batch * heads, device=device)[:, None, None]
    lines = torch.arange(rows, device=device)[:, None]
    words = philox((columns, lines, places, stream), key)
    halves = [half for word in torch.broadcast_tensors(*words) for half in (word & 0xFFFF, word >> 16)]
    return torch.stack(halves, dim=-1).flatten(-2)[..., :keys].view(shape)


def new_key() -> Tensor:
    """A key from torch's default generator on the CPU, for one pass through one place of a model."""
    return torch.randint(2**63 - 1, ())
