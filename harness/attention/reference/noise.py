"""Gaussian noise for attention logits, drawn by all threads on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

CHUNKS = 16
"""Parts with a random stream of their own. Their number is fixed, so that the noise does not depend on the threads."""
MIN_CHUNK = 2**16
"""Values of a chunk below which threads do not pay."""


def normal_like(x: Tensor, shape: Sequence[int], std: float) -> Tensor:
    """Return noise of N(0, std²) in a shape, with the dtype and device of `x`.

    torch draws normal numbers on one thread of a CPU, which takes half as long as attention itself.
    """
    noise = x.new_empty(*shape)
    if x.device.type != "cpu" or torch.compiler.is_compiling() or noise.numel() < CHUNKS * MIN_CHUNK:
        return noise.normal_(std=std)
    seeds = torch.randint(2**62, (CHUNKS,)).tolist()

    def fill(chunk: Tensor, seed: int) -> None:
        chunk.normal_(std=std, generator=torch.Generator().manual_seed(seed))

    with ThreadPoolExecutor(min(CHUNKS, torch.get_num_threads())) as pool:
        list(pool.map(fill, noise.view(-1).chunk(CHUNKS), seeds))
    return noise
