"""Patches for sites other than attention: outputs of blocks, tokens, whole layers and weight matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from harness.models.adapter import Patch
from harness.regularizers.base import Site
from harness.regularizers.output import regularized_output


class RegularizedForward:
    """The forward of one module, regularized in training; set as the module's `forward`.

    An object, and not a function, so that copies and pickles of the module have their own.
    """

    def __init__(self, module: nn.Module, site: Site) -> None:
        self.module, self.site = module, site
        self.returned: int | None = None
        """How many values the layer returns; None until it has run: a tensor, not a tuple."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = partial(type(self.module).forward, self.module, *args, **kwargs)
        site, regularizer = self.site, self.site.regularizer
        active = self.module.training and regularizer is not None and site.ratio > 0.0
        if regularizer is None or not (active or site.module is not None):
            return forward()
        if site.kind == "layer":
            hidden = args[0] if args else kwargs[next(iter(kwargs))]
            extra: list[Any] = []
            out = regularizer.run_layer(partial(_first, forward, extra), hidden, site)
            return out if not self._returns_more(extra, forward) else (out, *self._rest(extra))
        result = forward()
        first = result[0] if isinstance(result, tuple) else result
        if site.kind == "tokens":
            first = regularizer.tokens(first, site)
        else:
            first = regularized_output(first, site, training=self.module.training)
        return (first, *result[1:]) if isinstance(result, tuple) else first

    def _returns_more(self, extra: list[Any], forward: partial[Any]) -> bool:
        """Return whether the layer returns a tuple; the first time a skipped layer is run to find out."""
        import torch

        if not extra and self.returned is None:
            with torch.no_grad():
                _first(forward, extra)
        if extra:
            self.returned = len(extra[0]) if isinstance(extra[0], tuple) else 0
        return bool(self.returned)

    def _rest(self, extra: list[Any]) -> tuple[Any, ...]:
        return extra[0][1:] if extra else (None,) * ((self.returned or 1) - 1)


def _first(forward: partial[Any], extra: list[Any]) -> Tensor:
    """Run a layer; return its hidden states, and append everything that it returns to `extra`."""
    result = forward()
    extra.append(result)
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
        """Restore the module."""
        super().detach()
        for name in (self.slot, "forward"):
            vars(self.module).pop(name, None)


@dataclass(frozen=True)
class WeightPatch(Patch):
    """A weight matrix, which a `harness.regularizers.output.WeightModule` computes from its parameter."""

    slot: ClassVar[str] = "weight_site"

    def attach(self) -> None:
        """Do nothing: the weight's module is installed as a parametrization, and has the site."""
