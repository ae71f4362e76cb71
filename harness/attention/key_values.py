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
        self._tokens = torch.empty(0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append keys and values of new tokens, both (B, H, T, d).

        Returns:
            The keys and the values of all tokens so far (B, H, S, d), and the mask of the new queries (T, S), which is
            True where they may attend; None if that is everywhere, as for a single token.
        """
        start, tokens = self.length, k.shape[-2]
        end = self.length = start + tokens
        if not start:
            self._tokens = k.new_empty(2, *k.shape[:2], self.capacity, k.shape[-1])
        self._tokens[0, :, :, start:end], self._tokens[1, :, :, start:end] = k, v
        keys, values = self._tokens[:, :, :, :end].unbind()
        mask = None if tokens == 1 else torch.ones(tokens, end, dtype=torch.bool, device=k.device).tril(start)
        return keys, values, mask
