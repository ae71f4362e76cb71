"""Counter-based random bits: Philox 4x32 with 7 rounds (Salmon et al. 2011) in torch operations.

"Parallel random numbers: as easy as 1, 2, 3", SC'11: the generator passes BigCrush from 7 rounds on. One block of 128
bits makes eight decisions of 16 bits each. Works on any device and in compiled graphs; ``kernels/drop_bits.h`` and
``kernels/triton_drop_mask.py`` generate the same bits.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

ROUNDS = 7
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
UINT32_MAX = 0xFFFFFFFF

Bits = TypeVar("Bits", bound=Tensor | int)


def philox(
    counter: tuple[Bits | int, Bits | int, Bits | int, Bits | int], seed: Bits, rounds: int = ROUNDS
) -> tuple[Bits, Bits, Bits, Bits]:
    """Return 128 random bits per counter.

    Args:
        counter: four 32-bit words, as integers or broadcastable int64 tensors.
        seed: 64 bits (Philox's key), an integer or an int64 tensor.
        rounds: 7; Random123's default generator uses 10.

    Returns:
        four 32-bit words, of the type of the arguments.
    """
    k0, k1 = seed & UINT32_MAX, seed >> 32 & UINT32_MAX
    words: tuple[Any, ...] = counter
    c0, c1, c2, c3 = words
    for _ in range(rounds):
        # A product of more than 63 bits wraps around, but the bits used here stay correct.
        low, high = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c2 = (high >> 32 & UINT32_MAX) ^ c1 ^ k0, (low >> 32 & UINT32_MAX) ^ c3 ^ k1
        c1, c3 = high & UINT32_MAX, low & UINT32_MAX
        k0, k1 = k0 + WEYL[0] & UINT32_MAX, k1 + WEYL[1] & UINT32_MAX
    return c0, c1, c2, c3


def random_halves(
    philox_seed: Tensor, stream: int, shape: tuple[int, int, int, int], device: torch.device | None
) -> list[Tensor]:
    """Return 16 random bits per cell of `shape` (B, H, T, S) as int64, by position in their Philox block.

    The block with counter (j // 8, i, b · H + h, stream) holds the bits of keys j to j + 7 of query i: the result is
    eight tensors (B · H, T, ⌈S / 8⌉), which `interleave` joins. Comparing them before it moves booleans instead of
    int64 values.
    """
    batch, heads, seqlen_q, seqlen_k = shape
    key_blocks = torch.arange(-(-seqlen_k // 8), device=device)
    offs_bh = torch.arange(batch * heads, device=device)[:, None, None]
    offs_m = torch.arange(seqlen_q, device=device)[:, None]
    words = philox((key_blocks, offs_m, offs_bh, stream), philox_seed)
    return [half for word in torch.broadcast_tensors(*words) for half in (word & 0xFFFF, word >> 16)]


def interleave(halves: list[Tensor], shape: tuple[int, int, int, int]) -> Tensor:
    """Return values by position in their block as one tensor of `shape` (B, H, T, S)."""
    return torch.stack(halves, dim=-1).flatten(-2)[..., : shape[3]].view(shape)


def sample_philox_seed() -> Tensor:
    """Draw a seed for one pass through one attention site, from torch's default CPU generator."""
    return torch.randint(2**63 - 1, ())
