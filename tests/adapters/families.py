"""One small model of every family that `regularize` knows, with inputs, and what must not leak in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adapters import compat

compat.install()

Inputs = dict[str, Tensor]
SAMPLES, TOKENS, VOCABULARY = 2, 6, 20


@dataclass(frozen=True)
class Leak:
    """Inputs that part of the output must know nothing of: padding, or the future."""

    name: str
    change: Callable[[Inputs], Inputs]
    unaware: Callable[[Tensor], Tensor]
    """Cuts out of the output what must stay the same."""
    control: Callable[[Inputs], Inputs]
    aware: Callable[[Tensor], Tensor]
    """The same kind of change where it is seen, and what must not stay the same then."""


@dataclass(frozen=True)
class Family:
    """How a small model is made and called."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    sites: Mapping[str, int]
    """How many of each kind `regularize` touches."""
    output: Callable[[Any], Tensor] = lambda out: out
    leaks: tuple[Leak, ...] = ()
    grid: bool = False
    """Whether its keys form a grid."""
    calls: int = 1
    """How often a site runs in one forward pass."""
    own: bool = False
    """Whether its modules hold their sites from the start, as those of models written for DropBench do."""

    def model(self) -> nn.Module:
        """The model, the same each time, in eval mode."""
        torch.manual_seed(7)
        model = self.build().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # Fresh parameters are 0 here and there, and attention nearly uniform: neither shows a difference.
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    def run(self, model: nn.Module, inputs: Inputs | None = None, seed: int = 3) -> Tensor:
        """The output, with the draws of one seed."""
        torch.manual_seed(seed)
        return self.output(model(**(self.inputs() if inputs is None else inputs)))


def changed(where: Any, *keys: str) -> Callable[[Inputs], Inputs]:
    """Other values in one part of some inputs: other tokens, or numbers far away."""

    def change(inputs: Inputs) -> Inputs:
        other = {key: inputs[key].clone() for key in keys}
        for values in other.values():
            part = values[where]
            values[where] = part + 5 if part.is_floating_point() else (part + 5) % (VOCABULARY - 4) + 4
        return {**inputs, **other}

    return change


def tokens(name: str = "input_ids", mask: str | None = "attention_mask", seed: int = 0) -> Inputs:
    """Token ids (2, 6) and a mask that hides the last two tokens of the first sample."""
    ids = torch.randint(4, VOCABULARY, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(seed))
    real = torch.ones(SAMPLES, TOKENS, dtype=torch.long)
    real[0, 4:] = 0
    return {name: ids, **({} if mask is None else {mask: real})}


def vectors(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


HIDDEN, SEEN = (0, slice(4, None)), (1, slice(4, None))
"""The last two tokens of the first sample are padding, those of the second are real."""


def padding(*keys: str) -> Leak:
    """Real tokens must not know what stands in the padding beside them."""
    return Leak("padding", changed(HIDDEN, *keys), lambda out: out[0, :4], changed(SEEN, *keys), lambda out: out[1])


def future(*keys: str) -> Leak:
    """A decoder's output at a token must not know what comes after it."""
    later = changed((slice(None), slice(3, None)), *keys)
    return Leak("future", later, lambda out: out[:, :3], later, lambda out: out[:, 3:])


def source_padding(*keys: str) -> Leak:
    """A decoder must not know what stands in the padding of its source."""
    return Leak("source padding", changed(HIDDEN, *keys), lambda out: out[0], changed(SEEN, *keys), lambda out: out[1])
