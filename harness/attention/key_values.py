"""Keys and values of earlier tokens, for causal self-attention on the tokens after them."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValues:
    """A key-value cache of one causal self-attention.

    Attributes:
        capacity: maximum number of tokens.
        length: number of tokens in the cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._keys = self._values = torch.empty(0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append keys and values of new tokens, both (B, H, T, d).

        Returns:
            The keys and the values of all tokens so far (B, H, S, d), and the mask of the new queries (T, S), which is
            True where they may attend; None if that is everywhere, as for a single token.
        """
        start, tokens = self.length, k.shape[-2]
        end = start + tokens
        if not start:
            self._keys, self._values = (x.new_empty(*x.shape[:2], self.capacity, x.shape[-1]) for x in (k, v))
        self._keys[:, :, start:end], self._values[:, :, start:end] = k, v
        self.length = end
        mask = None if tokens == 1 else torch.ones(tokens, end, dtype=torch.bool, device=k.device).tril(start)
        return self._keys[:, :, :end], self._values[:, :, :end], mask
