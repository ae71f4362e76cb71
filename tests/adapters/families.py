"""Families of small models that `regularize` supports, with inputs and the leaks that they must not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dropbench.adapters import compat

compat.install()

Inputs = dict[str, Tensor]
SAMPLES, TOKENS, VOCABULARY = 2, 6, 20


@dataclass(frozen=True)
class Leak:
    """A change of inputs that must not affect part of the output: in padding, or in the future."""

    name: str
    change: Callable[[Inputs], Inputs]
    unaware: Callable[[Tensor], Tensor]
    """Returns the part of the output that must not change."""
    control: Callable[[Inputs], Inputs]
    aware: Callable[[Tensor], Tensor]
    """A change of the same kind in visible inputs, and the part of the output that must change with it."""


@dataclass(frozen=True)
class Family:
    """A small model, its inputs and its sites."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    sites: Mapping[str, int]
    """The number of sites of each kind that `regularize` binds."""
    output: Callable[[Any], Tensor] = lambda out: out
    leaks: tuple[Leak, ...] = ()
    grid: bool = False
    """True if the keys form a grid."""
    calls: int = 1
    """The number of calls of a site in one forward pass."""
    own: bool = False
    """True if modules have sites from the start, as in models written for DropBench."""

    @property
    def library(self) -> str:
        return self.name.partition("-")[0]

    def model(self) -> nn.Module:
        """Return the model in eval mode, with the same weights each time."""
        torch.manual_seed(7)
        model = self.build().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # With fresh parameters, some of them 0, attention is nearly uniform and hides differences.
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    def run(self, model: nn.Module, inputs: Inputs | None = None, seed: int = 3) -> Tensor:
        """Return the output for a seed."""
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` formats three call stacks besides
        return self.output(model(**(self.inputs() if inputs is None else inputs)))


def changed(where: Any, *keys: str) -> Callable[[Inputs], Inputs]:
    """Return a change of one part of some inputs, to other tokens or to distant numbers."""

    def change(inputs: Inputs) -> Inputs:
        copies = {key: inputs[key].clone() for key in keys}
        for values in copies.values():
            part = values[where]
            values[where] = part + 5 if part.is_floating_point() else (part + 5) % (VOCABULARY - 4) + 4
        return {**inputs, **copies}

    return change


def tokens(name: str = "input_ids", mask: str | None = "attention_mask", seed: int = 0) -> Inputs:
    """Return token ids (2, 6) and a mask that hides the last two tokens of the first sample."""
    ids = torch.randint(4, VOCABULARY, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(seed))
    real = torch.ones(SAMPLES, TOKENS, dtype=torch.long)
    real[0, 4:] = 0
    return {name: ids, **({} if mask is None else {mask: real})}


def vectors(*shape: int, seed: int = 0) -> Tensor:
    """Return random numbers that depend only on shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


HIDDEN, SEEN = (0, slice(4, None)), (1, slice(4, None))
"""The last two tokens of the first sample are padding, those of the second are real."""


def padding(*keys: str) -> Leak:
    """Return the leak of padding into real tokens."""
    return Leak("padding", changed(HIDDEN, *keys), lambda out: out[0, :4], changed(SEEN, *keys), lambda out: out[1])


def future(*keys: str) -> Leak:
    """Return the leak of later tokens into a decoder's output."""
    later = changed((slice(None), slice(3, None)), *keys)
    return Leak("future", later, lambda out: out[:, :3], later, lambda out: out[:, 3:])


def source_padding(*keys: str) -> Leak:
    """Return the leak of padding of the source into a decoder."""
    return Leak("source padding", changed(HIDDEN, *keys), lambda out: out[0], changed(SEEN, *keys), lambda out: out[1])
