"""Patches for sites other than attention: outputs of blocks, tokens, whole layers and weight matrices."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dropbench.harness.models.adapter import Patch
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.output import regularized_output


class RegularizedForward:
    """The forward of one module, regularized in training; set as the module's `forward`.

    An object, and not a function, so that copies and pickles of the module have their own.
    """

    def __init__(self, module: nn.Module, site: Site) -> None:
        self.module, self.site = module, site
        self.extra: tuple[None, ...] | None = None
        """The values that a layer returns after its hidden states; None until it has run, or if they are tensors."""
        self.returns_tuple = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = partial(type(self.module).forward, self.module, *args, **kwargs)
        site, regularizer = self.site, self.site.regularizer
        active = self.module.training and regularizer is not None and site.ratio > 0.0
        if regularizer is None or not (active or site.module is not None):
            return forward()
        if site.kind == "layer":
            hidden = args[0] if args else kwargs[list(inspect.signature(forward.func).parameters)[1]]
            return self._layer(forward, hidden, regularizer)
        result = forward()
        first = result[0] if isinstance(result, tuple) else result
        if site.kind == "tokens":
            first = regularizer.tokens(first, site)
        else:
            first = regularized_output(first, site, training=self.module.training)
        return (first, *result[1:]) if isinstance(result, tuple) else first

    def _layer(self, forward: partial[Any], hidden: Tensor, regularizer: Regularizer) -> Any:
        """Run a layer, or skip it, and return what it returns.

        A skipped layer must still return whatever else later layers need, such as the position bias of T5. If this is
        a tensor, the layer runs although its hidden states are not used; the first time, it runs to find out. Such a
        run changes no random number, so that a resumed training has the same ones.
        """
        result: list[Any] = []
        out = regularizer.run_layer(partial(_run, forward, result), hidden, self.site)
        if not result and self.extra is None:
            with torch.random.fork_rng(devices=[hidden.device] if hidden.is_cuda else []):
                _run(forward, result)
        if result:
            self._note(result[0])
        extra = result[0][1:] if result and self.returns_tuple else self.extra or ()
        return (out, *extra) if self.returns_tuple else out

    def _note(self, result: Any) -> None:
        self.returns_tuple = isinstance(result, tuple)
        extra = result[1:] if self.returns_tuple else ()
        self.extra = None if any(item is not None for item in extra) else extra


def _run(forward: partial[Any], results: list[Any]) -> Tensor:
    """Run a layer; return its hidden states, and append everything that it returns to `results`."""
    result = forward()
    results.append(result)
    hidden: Tensor = result[0] if isinstance(result, tuple) else result
    return hidden


@dataclass(frozen=True)
class ForwardPatch(Patch):
    """A module whose output, tokens or layer is regularized."""

    slot: ClassVar[str] = "forward_site"

    def attach(self) -> None:
        """Replace the module's `forward`, with its site."""
        vars(self.module)[self.slot] = self.site
        vars(self.module)["forward"] = RegularizedForward(self.module, self.site)

    def detach(self) -> None:
        self.release_site()
        for name in (self.slot, "forward"):
            vars(self.module).pop(name, None)


@dataclass(frozen=True)
class WeightPatch(Patch):
    """A weight matrix, which a `dropbench.harness.regularizers.output.WeightModule` computes from its parameter."""

    slot: ClassVar[str] = "weight_site"

    def attach(self) -> None:
        """Do nothing: the weight's module is installed as a parametrization, and has the site."""

    def detach(self) -> None:
        self.release_site()
