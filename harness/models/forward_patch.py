"""Patches for sites other than attention: outputs of blocks, tokens, whole layers and weight matrices."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.adapter import Patch
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.output import regularized_output, weight_modules


class RegularizedForward:
    """The forward of one module, regularized in training; set as the module's `forward`.

    An object, and not a function, so that copies and pickles of the module have their own.
    """

    def __init__(self, module: nn.Module, site: Site) -> None:
        self.module, self.site = module, site
        self.extra: tuple[None, ...] | None = None
        """The values that a layer returns after its hidden states; None until it has run, or if they are tensors."""
        self.returns_tuple = self.changes_shape = self.noted = False

    @property
    def may_repeat(self) -> bool:
        """True if a second run computes the same: not where the next one finds out what a layer returns."""
        return self.noted or self.site.kind != "layer" or self.site.ratio <= 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = partial(type(self.module).forward, self.module, *args, **kwargs)
        site, regularizer = self.site, self.site.regularizer
        active = self.module.training and regularizer is not None and site.ratio > 0.0
        if regularizer is None or not (active or site.module is not None):
            return forward()
        if site.kind == "layer" and self.changes_shape:
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

    def _layer(self, forward: partial[Any], hidden: Any, regularizer: Regularizer) -> Any:
        """Run a layer, or skip it, and return what it returns.

        A skipped layer must still return whatever else later layers need, such as the position bias of T5. If this is
        a tensor, the layer runs although its hidden states are not used; the first time, it runs to find out. Such a
        run changes no random number, so that a resumed training has the same ones. A layer that changes the shape of
        its hidden states is never skipped.
        """
        result: list[Any] = []
        out: Any = regularizer.run_layer(partial(_run, forward, result), hidden, self.site)
        if not result and self.extra is None:
            with torch.random.fork_rng(devices={state.device for state in _states(hidden) if state.is_cuda}):
                _run(forward, result)
        if result:
            self._note(result[0], hidden)
            if self.changes_shape:
                return result[0]
        extra = result[0][1:] if result and self.returns_tuple else self.extra or ()
        return (out, *extra) if self.returns_tuple else out

    def _note(self, result: Any, hidden: Any) -> None:
        self.noted = True
        self.returns_tuple = isinstance(result, tuple)
        after = result[0] if self.returns_tuple else result
        self.changes_shape = [each.shape for each in _states(after)] != [each.shape for each in _states(hidden)]
        extra = result[1:] if self.returns_tuple else ()
        self.extra = None if any(item is not None for item in extra) else extra


def _states(hidden: Any) -> list[Tensor]:
    """Return the hidden states of a layer, or of its branches, as those of CrossViT."""
    return [hidden] if isinstance(hidden, Tensor) else list(hidden)


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


PLACES = "regularized_places"
"""The attribute of a model that holds where its modules with a regularized forward or weight are: their parent, name
and themselves."""


def follow_wrappers(model: nn.Module) -> None:
    """Have the sites of a model follow modules that are adapted later, as by peft."""
    patched = {id(module) for module in model.modules() if _regularized_site(module) is not None}
    if not patched and PLACES not in vars(model):
        return
    vars(model)[PLACES] = [
        (parent, name, child) for parent in model.modules() for name, child in parent.named_children()
        if id(child) in patched
    ]  # fmt: skip
    if not any(hook is move_sites for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(move_sites)


def move_sites(model: nn.Module, inputs: Any) -> None:
    """Move the sites of maps that were adapted, or merged, since `regularize`; called before each forward pass."""
    if any(parent._modules.get(name) is not module for parent, name, module in vars(model)[PLACES]):
        _move_sites(vars(model)[PLACES])


@torch.compiler.disable(  # type: ignore[untyped-decorator]
    reason="adapters were added since `regularize`: call the model once before compiling it"
)
def _move_sites(places: list[tuple[nn.Module, str, nn.Module]]) -> None:
    """Move the sites of modules to those that replaced them; one in a container, as of FSDP, stays where it is.

    Raises:
        InputError: the other module is neither an adapter of the site's nor adapted by it, or the site has a module of
            its own.
    """
    for number, (parent, name, module) in enumerate(places):
        other, site = parent._modules.get(name), _regularized_site(module)
        if other is module or site is None:
            continue
        related = any(base is module for base in bases_of(other)) or any(base is other for base in bases_of(module))
        owners = [] if related or other is None else [each for each in other.modules() if module in each.children()]
        if owners:
            key = next(key for key, child in owners[0].named_children() if child is module)
            places[number] = owners[0], key, module
            continue
        if other is None or not related or site.module is not None:
            raise InputError(
                f"{site.name}: it was replaced by a {type(other).__name__} since `regularize`: call `regularize` again"
            )
        del vars(module)["forward"]
        vars(other)[ForwardPatch.slot] = vars(module).pop(ForwardPatch.slot)
        vars(other)["forward"] = RegularizedForward(other, site)
        places[number] = parent, name, other


def _regularized_site(module: nn.Module) -> Site | None:
    """Return the site of a module's weight, or of its regularized forward; None if it has neither."""
    for _, built in weight_modules(module):
        site: Site = vars(built)["weight_site"]
        return site
    forward = vars(module).get("forward")
    return forward.site if isinstance(forward, RegularizedForward) else None


def bases_of(module: nn.Module | None) -> Iterator[nn.Module]:
    """Yield the modules to whose output an adapter, such as those of peft, adds: its base, and the base of that."""
    base = getattr(module, "base_layer", None)
    if isinstance(base, nn.Module):
        yield base
        yield from bases_of(base)


def stop_following(model: nn.Module) -> None:
    """Undo `follow_wrappers`."""
    for module in model.modules():
        if vars(module).pop(PLACES, None) is not None:
            hooks = module._forward_pre_hooks
            for key in [key for key, hook in hooks.items() if hook is move_sites]:
                del hooks[key]


@dataclass(frozen=True)
class WeightPatch(Patch):
    """A weight matrix, which a `dropbench.harness.regularizers.output.WeightModule` computes from its parameter."""

    slot: ClassVar[str] = "weight_site"

    def attach(self) -> None:
        """Do nothing: the weight's module is installed as a parametrization, and has the site."""

    def detach(self) -> None:
        self.release_site()
